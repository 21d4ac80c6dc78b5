"""Errors of released detailed groups against the confidential truth; they are confidential too.

For each population group level and each table that its groups received: how many groups there are,
how many are shown, how far the shown totals and cells are from the truth, and the effect of
suppression: inhabited groups not shown, empty groups shown. For households: errors of totals and
counts by tabulation, level and table.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from ...products.comparison import write_errors
from ...runs.directory import RunDirectory
from ..ingest.counts import read_counts
from ..ingest.ingest import Settings, counts_file, run_parameters, run_regions, run_universe
from ..measurement import ShardGroups, true_counts
from ..postprocess import code_positions, counts_of, groups_to_release, mask_of, stages_of
from ..settings import DetailedGroupsSettings
from ..workload.tabulations import NOT_MEASURED, TABULATIONS, Tabulation

KEYS = ("region_type", "level", "table")


FIGURES = {
    "groups": "measured groups",
    "shown": "groups that are shown",
    "mean_absolute_error": "mean absolute error of shown totals",
    "mean_error": "mean error of shown totals",
    "mean_absolute_cell_error": "mean absolute error of shown cells",
    "somebody_suppressed": "groups of somebody that are not shown",
    "nobody_shown": "groups of nobody that are shown",
}


HOUSEHOLD_KEYS = ("tabulation", *KEYS)


HOUSEHOLD_FIGURES = {
    "groups": "measured groups",
    "mean_absolute_error": "mean absolute error of totals",
    "mean_error": "mean error of totals",
    "mean_absolute_cell_error": "mean absolute error of measured counts",
}


ALL_TABLES = "all"
"""The table of errors over all tables of a level."""


def write_accuracy(run: RunDirectory, settings: Settings) -> None:
    """Write the errors of every tabulation and level to the confidential folder of the run."""
    rows: list[dict[str, object]] = []
    for name in settings.TABULATIONS:
        tabulation = TABULATIONS[name]
        where = {} if tabulation.of_persons else {"tabulation": name}
        for (region_type, level), groups in groups_to_release(run, settings, name):
            if groups.num_rows:
                position, truth = _truth_of(run, region_type, level, groups)
                of_level = {**where, "region_type": region_type, "level": level}
                errors = level_errors(groups, position, truth, tabulation)
                rows += [of_level | row for row in errors]
    write_errors(run, pa.Table.from_pylist(rows))


def _truth_of(
    run: RunDirectory, region_type: str, level: int, groups: pa.Table
) -> tuple[np.ndarray, ShardGroups]:
    """The place (n,) of each group of a level among its regions and iterations, region by region,
    and their confidential counts.
    """
    universe, regions = run_universe(run, region_type, level), run_regions(run, region_type)
    region = code_positions(groups, "region_id", regions.ids.tolist())
    iteration = code_positions(groups, "iteration_code", universe.codes.tolist())
    counts = read_counts(counts_file(run, region_type, level), 0, len(regions))
    truth = ShardGroups(0, len(regions), universe.total_only, counts)
    return region * len(universe) + iteration, truth


def level_errors(
    groups: pa.Table, position: np.ndarray, truth: ShardGroups, tabulation: Tabulation
) -> Iterator[dict[str, object]]:
    """Errors of one level by the table that its groups have.

    Args:
        groups: columns `SCREENED`, suppressed groups included.
        position: of each group among all regions and iterations of `truth`.
        truth: the level's confidential counts.

    Yields for each table: `groups`; mean absolute error and mean error of shown totals, and mean
    absolute error of shown cells. For persons also `shown`, the 95th percentile of the absolute
    error of totals, `somebody_suppressed` (groups of somebody that are not shown) with the mean
    size of those groups, and `nobody_shown`; for households tables of no group are left out.
    """
    table = groups["table"].to_numpy()
    chosen = np.full(truth.is_total_only.size, NOT_MEASURED, dtype=np.int8)
    chosen[position] = table
    true = true_counts(truth, chosen, tabulation)
    counts, offsets = counts_of(groups)
    first, n_cells = offsets[:-1], np.diff(offsets)
    place = np.arange(counts.size) + np.repeat(true.offsets[position] - first, n_cells)
    true_cells = true.values[place]
    of_groups = pd.DataFrame(
        {
            "is_shown": ~mask_of(groups, "is_suppressed"),
            "true": np.add.reduceat(true_cells, first),
            "error": np.add.reduceat(counts - true_cells, first),
            "cell_error": np.add.reduceat(np.abs(counts - true_cells), first) / n_cells,
        }
    )
    for number, name in enumerate(tabulation.names):
        own = of_groups[table == number]
        shown, hidden = own[own["is_shown"]], own[~own["is_shown"]]
        lost = hidden.loc[hidden["true"] > 0, "true"]
        found: dict[str, object] = {
            "table": name,
            "groups": len(own),
            "shown": len(shown),
            "mean_absolute_error": shown["error"].abs().mean(),
            "mean_error": shown["error"].mean(),
            "percentile_95": shown["error"].abs().quantile(0.95),
            "mean_absolute_cell_error": shown["cell_error"].mean(),
            "somebody_suppressed": len(lost),
            "mean_size_suppressed": lost.mean(),
            "nobody_shown": int((shown["true"] == 0).sum()),
        }
        if tabulation.of_persons:
            yield found
        elif len(own):
            yield {key: found[key] for key in ("table", *HOUSEHOLD_FIGURES)}


def comparison_facts(run: RunDirectory, settings: Settings) -> dict[str, str]:
    """Facts of a run, in words."""
    parameters = run_parameters(run, settings)
    found = {
        "definition": parameters.definition,
        "total": f"{float(parameters.total):.6g}",
    }
    if isinstance(settings, DetailedGroupsSettings):
        found["postprocessing"] = ", ".join(stages_of(settings))
    return found


def with_all_tables(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors by level and table, and below them each level's over all of its tables.

    Figures that are means weigh as many groups as are shown; the others add up.
    """
    place = ["region_type", "level"]
    means = [name for name in FIGURES if name.startswith("mean_")]
    counts = [name for name in FIGURES if name not in means]
    weights = errors[means].notna().mul(errors["shown"], axis=0)
    by_level = [errors[name] for name in place]
    sums = (errors[means] * weights).groupby(by_level, sort=False).sum()
    whole = errors.groupby(place, sort=False)[counts].sum()
    whole[means] = sums / weights.groupby(by_level, sort=False).sum()
    whole = whole.reset_index().assign(table=ALL_TABLES)
    return pd.concat([errors, whole], ignore_index=True)
