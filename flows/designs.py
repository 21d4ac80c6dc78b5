"""What the command `design` does: the best split of a budget, shown and written as settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from ..tasks.group_sizes.design import design as group_sizes
from ..tasks.products.presets import PRESETS
from ..tasks.runs.files import write_text
from ..tasks.runs.settings_files import dump_settings, load_settings
from ..tasks.solvers.level_design import DesignedLevels
from ..tasks.topdown.design.design import Design, designs_json, designs_of, settings_text
from ..tasks.topdown.design.settings import DesignSettings
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.spine.build import refuse_no_spine
from ..tasks.trips.design import design as trips
from .arguments import AsJson, Overrides, SettingsFile
from .console import page

OF_LEVELS: Mapping[str, tuple[type[Any], Callable[[Any], tuple[DesignedLevels, Any]]]] = {
    "group-sizes": (group_sizes.GroupSizesDesignSettings, group_sizes.designed),
    "trips": (trips.TripsDesignSettings, trips.designed),
}
"""Products whose budget is shared among levels: settings with a design, and what finds it."""


def write_design(
    flow: Literal["topdown", "group-sizes", "trips"],
    settings_file: SettingsFile,
    /,
    *,
    overrides: Overrides = (),
    out: Path | None = None,
    is_json: AsJson = False,
) -> None:
    """Design the budget that a settings file has a section [design] for, and write settings.

    Reads public geography, and of housing units declared invariants, alone.

    Args:
        flow: what to run
        out: settings file to write (default: SETTINGS-designed.toml)
    """
    file = out or settings_file.with_name(f"{settings_file.stem}-designed.toml")
    if flow == TopdownSettings.PRODUCT:
        _design_topdown(settings_file, overrides, file, as_json=is_json)
    else:
        _design_levels(flow, settings_file, overrides, file, as_json=is_json)
    if not is_json:
        print(f"settings: {file}")


def _design_levels(
    product: str, settings_file: Path, overrides: Sequence[str], file: Path, *, as_json: bool
) -> None:
    """Design the shares of the levels of group sizes or trips, show them, and write settings."""
    model, designed = OF_LEVELS[product]
    settings = load_settings(model, settings_file, presets=PRESETS, overrides=overrides)
    found, chosen = designed(settings)
    write_text(file, f"# Shares of levels: {found.certificate}.\n{dump_settings(chosen)}")
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        show_levels(found)


def show_levels(design: DesignedLevels) -> None:
    """Margins of the targets before and after, shares of the levels, and the certificate."""
    console, names = page(), design.errors.names
    symbol, after = design.errors.symbol, float(design.total)
    console.print(f"\n{symbol} {float(design.before):.6g}, designed {after:.6g}")
    table = Table("level", "margin wanted", "now", "designed")
    for target in design.targets:
        wanted = "" if target.wanted is None else f"{target.wanted:.6g}"
        table.add_row(target.level, wanted, f"{target.now:.4g}", f"{target.designed:.4g}")
    console.print(table)
    shares = Table("level", "share now", "designed")
    for level, share in design.shares.items():
        now = float(design.shares_before.get(level, 0))
        shares.add_row(names[level], f"{now:.2%}", f"{float(share):.2%}")
    console.print(shares)
    if design.errors.tree is None:
        console.print(
            "Margins of 95 %, of each level's own noisy counts; estimates also use those of "
            "other levels."
        )
    else:
        console.print(
            "Margins of 95 %, of least squares on a tree of the mean numbers of parts; releases "
            "have whole counts and none below 0, and differ."
        )
    console.print(f"Certain: {design.certificate}.")
    if design.needed_now is not None:
        console.print(
            f"These margins would need {symbol} {design.needed_now:.6g} with the shares of now."
        )


def _design_topdown(
    settings_file: Path, overrides: Sequence[str], file: Path, *, as_json: bool
) -> None:
    """Design the budgets of universes over geolevels and queries, show them, write settings."""
    settings = load_settings(DesignSettings, settings_file, presets=PRESETS, overrides=overrides)
    settings = settings.resolved()
    refuse_no_spine(settings.topdown)
    designs = designs_of(settings)
    write_text(file, settings_text(settings, designs))
    if as_json:
        print(designs_json(designs))
        return
    for design in designs.values():
        show_design(design)


def show_design(design: Design) -> None:
    """Margins of every target before and after, shares of the geolevels, and the certificate."""
    console = page()
    before, after = float(design.before.total), float(design.budget.total)
    console.print(f"\n[bold]{design.universe}[/bold]: rho {before:.4g}, designed {after:.4g}")
    table = Table("target", "query", "level or areas", "areas", "wanted", "now", "designed")
    for target in design.targets:
        table.add_row(
            target.name,
            target.query,
            target.where,
            f"{target.n_areas:,}",
            "" if target.wanted is None else f"{target.wanted:.3g}",
            f"{target.now:.3g}",
            f"{target.designed:.3g}",
        )
    console.print(table)
    shares = Table("geolevel", "share now", "designed", "largest queries")
    for name, share in design.budget.geolevel_shares.items():
        queries = sorted(design.budget.query_shares[name].items(), key=lambda item: -item[1])
        named = ", ".join(f"{query} {float(part):.0%}" for query, part in queries[:3])
        now = float(design.before.geolevel_shares[name])
        shares.add_row(name, f"{now:.2%}", f"{float(share):.2%}", named)
    console.print(shares)
    console.print(
        "Margins of 95 %, root mean square, of best linear unbiased estimates from all noisy "
        "answers; releases have no negative counts, and differ."
    )
    console.print(f"Certain: {design.certificate}.")
    if design.guarantee is not None:
        console.print(f"Guaranteed: {design.guarantee.in_words}.")
    console.print(
        f"The margins of now would need a rho of {design.rho_for_now:.4g} at these shares."
    )
