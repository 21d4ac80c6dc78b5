"""Figures of budgets, errors and margins, for notebooks.

They are drawn with matplotlib, an extra of the installation (`pip install spineflow[plots]`), and
return its axes, so that a notebook can add titles, place them next to others and save them in any
format. The figures of the reports are drawn by the program's own code instead, which needs no
package and makes self-contained pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from spineflow.tasks.runs.errors import InputRefused

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDS = ("lower", "upper")
"""Columns of the margins of a declared table."""

AT_MOST = 30
"""Rows of a figure of margins: more cannot be read."""

SMALLEST_ERROR = 1e-3
"""Height of zero errors on a logarithmic scale."""


def plot_budget(what: Any, ax: Axes | None = None) -> Axes:
    """The share of the budget that every geolevel has, in bars, by query; a universe a bar each.

    Args:
        what: A run, or the frame of `budget`.
        ax: Axes to draw on; new ones where none are given.

    Raises:
        SpineflowError: matplotlib is not installed.

    Example: `spineflow.plot_budget(spineflow.budget("topdown", "settings.toml"))`.
    """
    frame = what if isinstance(what, pd.DataFrame) else what.budget
    rows = _prefix_universe(frame, "geolevel")
    wide = frame.assign(row=rows).pivot_table(
        index="row", columns="query", values="share", aggfunc="sum", sort=False, observed=True
    )
    axes = _axes(ax, len(wide))
    wide.fillna(0.0).plot.barh(ax=axes, stacked=True, width=0.7, cmap="tab20", ylabel="")
    axes.invert_yaxis()
    axes.set_xlabel("share of the universe's budget")
    return _finish_axes(axes, is_beside=True)


def plot_errors(what: Any, ax: Axes | None = None) -> Axes:
    """Mean absolute errors of a release of input that is not confidential, by level.

    One line a quantity, over the levels of the accuracy report, on a logarithmic scale; zero errors
    are at its foot.

    Args:
        what: A run of topdown, or its `errors`.
        ax: Axes to draw on; new ones where none are given.

    Raises:
        SpineflowError: The input is confidential, and so are its errors; or matplotlib is not
            installed.
    """
    frame = what if isinstance(what, pd.DataFrame) else what.errors
    if "mean_absolute_error" not in frame or "quantity" not in frame:
        raise InputRefused("Only errors of topdown runs are drawn; read others from `errors`.")
    lines = _prefix_universe(frame, "quantity")
    wide = frame.assign(line=lines).pivot_table(
        index="level", columns="line", values="mean_absolute_error", sort=False, observed=True
    )
    axes = _axes(ax, 8)
    wide.clip(lower=SMALLEST_ERROR).plot(
        ax=axes, logy=True, marker="o", markersize=4, xlabel="", xticks=range(len(wide))
    )
    axes.set_ylabel("mean absolute error of an answer")
    return _finish_axes(axes, is_beside=True)


def plot_margins(
    run: Any = None,
    table: str | None = None,
    count: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Margins of a table's counts, as distances below and above the released counts.

    A margin is an interval that contains the truth with a probability of 90 % at least. It need not
    contain the released count, which has to be consistent with all others.

    The first 30 rows are drawn.

    Args:
        run: A run of topdown.
        table: One of its `tables` that has margins.
        count: The variable of a redistricting table, such as `P0010001`, by default the first; a
            declared table has one alone.
        ax: Axes to draw on; new ones where none are given.

    Raises:
        SpineflowError: No run or no table is named, or it has no margins, or no such count; or
            matplotlib is not installed.
    """
    if run is None or not hasattr(run, "margins"):
        raise InputRefused("plot_margins needs a run, as open_run gives it, and a table of it.")
    # Without a table name, the run's error lists its tables.
    margins = run.margins(table or "")
    if table is None:
        raise InputRefused("plot_margins needs the name of a table that has margins.")
    released = run.table(table)
    if "count" in released:
        value, ends = "count", ENDS
    else:
        known = [n.removesuffix("_LOWER") for n in margins.columns if n.endswith("_LOWER")]
        value = count or known[0]
        ends = (f"{value}_LOWER", f"{value}_UPPER")
        if value not in known:
            raise InputRefused(
                f"The table {table} has no count {value!r}; it begins with {known[0]}."
            )
    keys = [n for n in released.columns if n in margins.columns and n not in ends]
    if "GEOID" in keys:
        keys = ["GEOCODE"]
    released = released[:AT_MOST]
    counts = released[value].to_numpy(dtype=float)
    low, high = (margins[end].to_numpy(dtype=float)[:AT_MOST] - counts for end in ends)
    names = released[keys].astype(str).agg(", ".join, axis=1)
    rows = [f"{name}: {count:,.0f}" for name, count in zip(names, counts, strict=True)]
    axes = _axes(ax, len(rows))
    places = np.arange(len(rows))
    axes.hlines(places, low, high, color="C0", linewidth=6, alpha=0.4)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_yticks(places, rows)
    axes.invert_yaxis()
    axes.set_xlabel(f"margin of 90 %, from the released {value}")
    return _finish_axes(axes)


def _prefix_universe(frame: pd.DataFrame, column: str) -> pd.Series:
    """A column, with the universe before it where there are several."""
    several = frame["universe"].nunique() > 1
    return frame["universe"] + ", " + frame[column] if several else frame[column]


def _axes(ax: Axes | None, n_rows: int) -> Axes:
    """The axes to draw on; new ones, as high as their rows need, where none are given."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise InputRefused(
            "Figures need matplotlib; install it with 'pip install spineflow[plots]'."
        ) from None
    return plt.subplots(figsize=(7.0, 1.2 + 0.32 * n_rows), layout="constrained")[1]


def _finish_axes(axes: Axes, *, is_beside: bool = False) -> Axes:
    """Axes without a frame at their top and right, and their legend inside or beside them."""
    where: dict[str, Any] = {"bbox_to_anchor": (1.02, 1.0), "loc": "upper left"}
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", frameon=False, **(where if is_beside else {}))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes
