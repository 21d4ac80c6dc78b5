"""Errors of the released rows against the confidential truth; they are confidential too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa

from ..products.budget import Cost
from ..products.comparison import write_errors
from ..runs.directory import RunDirectory
from .estimation import ROWS, values_of_level
from .ingest.ingest import read_areas, read_plan, true_counts
from .plan import answers_of
from .release import KEYS, released_rows
from .settings import SupplementalDhcSettings


def write_accuracy(run: RunDirectory, _settings: SupplementalDhcSettings) -> None:
    """Write the errors by table, level and iteration to the confidential folder of the run.

    True values are the measured counts without noise, after truncation. Averages over no households
    are skipped. Columns: table, level, iteration, kind ("count" or "average"), rows, rmse,
    rmse_noisy (of the noisy values themselves, where there are any), covered (share within the
    interval).
    """
    rows = released_rows(run).to_pandas()
    rows["truth"] = true_values(run, rows)
    averages = {row.table for row in ROWS if row.of is not None}
    rows["kind"] = np.where(rows["table"].isin(averages), "average", "count")
    rows = rows[rows["truth"].notna() & rows["estimate"].notna()]
    error, noisy = rows["estimate"] - rows["truth"], rows["noisy"] - rows["truth"]
    slack = 1e-3
    inside = (rows["low"] - slack <= rows["truth"]) & (rows["truth"] <= rows["high"] + slack)
    frame = rows.assign(square=error**2, square_noisy=noisy**2, covered=inside)
    found = frame.groupby([*KEYS, "kind"], sort=False).agg(
        rows=("square", "size"),
        rmse=("square", lambda values: float(np.sqrt(values.mean()))),
        rmse_noisy=("square_noisy", lambda values: float(np.sqrt(values.mean()))),
        covered=("covered", "mean"),
    )
    table = pa.Table.from_pandas(found.reset_index(), preserve_index=False)
    write_errors(run, table)


def true_values(run: RunDirectory, rows: pd.DataFrame) -> np.ndarray:
    """The true value of every released row, NaN for an average over no households."""
    plan, areas = read_plan(run), read_areas(run)
    exact = replace(plan, measures=tuple(replace(own, noise=None) for own in plan.measures))
    found: dict[tuple[str, str, str, str, int], float] = {}
    for level, regions in areas.regions.items():
        values = answers_of(plan, level, true_counts(run, areas, level))
        for row, region, code, value, _ in values_of_level(exact, level, regions, values):
            found[row.table, level, region, code, row.number] = np.nan if value is None else value
    keys = rows[["table", "level", "region", "iteration", "cell"]].itertuples(index=False)
    return np.array([found[tuple(key)] for key in keys], dtype=float)


def facts_of_run(run: RunDirectory, settings: SupplementalDhcSettings) -> dict[str, str]:
    """Description of a run in words."""
    return {
        "loss": Cost(read_plan(run)).in_words,
        "levels": ", ".join(settings.geography.levels),
        "tau": ", ".join(f"{name} {tau}" for name, tau in settings.taus.items()),
    }
