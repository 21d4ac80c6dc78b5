"""The postprocessing of a pass, level by level, through files of the run directory.

    measurements -> suppressed -> marginals -> coterminous -> alone

Each stage reads the previous stage's output, one file for each population group level, so that the
largest level determines the memory. The last two stages are optional, by the settings.
Suppression comes first, as in the production program, which suppresses measured counts and then
clips at zero. Nothing is read but noisy measurements, public geography and declared invariants.

Marginals are the totals and sex marginals that agree with the cells of each group.

The last stage suppresses counts of 'alone' that exceed 'alone or in any combination'. A person in a
race group alone is also in it alone or in any combination, but the two counts get independent
noise. Where the released total of the first exceeds the second's in one region, the first is
suppressed, its sex by age table included. A group whose counterpart is itself suppressed stays:
nothing that is shown contradicts it.

A sub-state group that received only a total is released if its noisy count is above the threshold
T, the smallest k for which an empty group would have a noisy count of at most k with the given
probability (equation 12 of [SafeTabP2025]). Groups with a sex by age table, groups that are
measured by a total only, and the nation and the states are never suppressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import inverse_cdf
from ..workload.regions import COARSE, REGION_TYPES
from .coterminous import NO_SET, CoterminousSets, copy_coterminous
from .groups import (
    COUNTED,
    MEASURED,
    SCREENED,
    codes_of,
    counts_of,
    mask_of,
    read_groups,
    with_counts,
    with_mask,
    write_groups,
)


def threshold_of(
    region_type: str, noise: IntegerDistribution | None, zero_suppression_chance: Fraction | None
) -> int | None:
    """The largest noisy count of a region type's groups that is suppressed; None without
    suppression: for the nation and states, or a chance of 0 or None.

    `noise` is the second stage's, None if there is no noise; counts of 0 and below are
    then suppressed. Raises ValueError for a chance outside [0, 1).

    >>> threshold_of("TRACT", IntegerDistribution(Fraction("0.0001"), 2), Fraction("0.9999"))
    263
    """
    if not zero_suppression_chance or REGION_TYPES[region_type].granularity != COARSE:
        return None
    return 0 if noise is None else inverse_cdf(noise, zero_suppression_chance)


def suppress(measured: pa.Table, threshold: int | None) -> pa.Table:
    """Mark the groups whose total alone was measured in the second stage and is not above T.

    `measured` has the columns `MEASURED`, of groups at one population group level; the result has
    `SCREENED`, in the same order.
    """
    is_suppressed = np.zeros(measured.num_rows, dtype=bool)
    if threshold is not None and measured.num_rows:
        counts, offsets = counts_of(measured)
        is_total = measured["table"].to_numpy() == 0
        is_total &= ~mask_of(measured, "total_only")
        is_suppressed = is_total & (counts[offsets[:-1]] <= threshold)
    screened = with_mask(measured, "is_suppressed", is_suppressed)
    return screened.append_column("measured_at", measured["region_type"])


SUPPRESSED, MARGINALS, COTERMINOUS, ALONE = (
    "suppressed",
    "marginals",
    "coterminous",
    "alone",
)

Level = tuple[str, int]
"""Region type and iteration level of a population group level."""


@dataclass(frozen=True)
class PassFiles:
    """Files of a pass's groups.

    measured : folder of the noisy measurements, with a folder for each region type and level.
    derived : folder of results derived from them, with a folder for each stage.
    levels : the measured levels, highest summary level first.
    """

    measured: Path
    derived: Path
    levels: tuple[Level, ...]

    def measurements(self, level: Level) -> list[Path]:
        """The files of noisy measurements of a level."""
        return sorted((self.measured / level[0] / str(level[1])).rglob("*.parquet"))

    def groups(self, stage: str, level: Level) -> Path:
        """The groups of a level after a stage."""
        return self.derived / stage / level[0] / f"{level[1]}.parquet"

    def are_there(self, stage: str) -> bool:
        """Whether a stage has finished for all levels."""
        return all(self.groups(stage, level).exists() for level in self.levels)


def levels_after(files: PassFiles, stage: str | None) -> Iterator[tuple[Level, pa.Table]]:
    """The groups of every level after a stage, suppressed ones included; None for the measured
    ones."""
    schema = {None: MEASURED, SUPPRESSED: SCREENED}.get(stage, COUNTED)
    for level in files.levels:
        paths = files.measurements(level) if stage is None else [files.groups(stage, level)]
        yield level, read_groups(paths, schema)


def change_levels(
    files: PassFiles, before: str | None, stage: str, change: Callable[[Level, pa.Table], pa.Table]
) -> None:
    """Write the groups of every level after a stage, from the output of the one `before` it."""
    for level, groups in levels_after(files, before):
        write_groups(files.groups(stage, level), change(level, groups))


def donate_between_levels(files: PassFiles, sets: CoterminousSets, order: Sequence[str]) -> None:
    """Algorithm 4 of [SafeTabP2025] on all levels together.

    Only groups of regions in sets are kept in memory.
    """
    members = {
        level: counted.filter(pa.array(sets.of_rows(counted) != NO_SET))
        for level, counted in levels_after(files, MARGINALS)
    }
    together = pa.concat_tables(members.values()).unify_dictionaries().combine_chunks()
    after = copy_coterminous(together, sets.of_rows(together), order)
    start = 0
    for level, counted in levels_after(files, MARGINALS):
        end = start + members[level].num_rows
        inside = sets.of_rows(counted) != NO_SET
        merged = _replace_groups(counted, inside, after.slice(start, end - start))
        write_groups(files.groups(COTERMINOUS, level), merged)
        start = end


def _replace_groups(groups: pa.Table, where: np.ndarray, by: pa.Table) -> pa.Table:
    """The groups with the masked ones replaced, in the same order."""
    if not where.any():
        return groups
    both = pa.concat_tables([groups, by.select(groups.schema.names)]).unify_dictionaries()
    source = np.arange(groups.num_rows)
    source[where] = groups.num_rows + np.arange(by.num_rows)
    return both.combine_chunks().take(pa.array(source))


def add_marginals(screened: pa.Table, *, allow_negative_counts: bool) -> pa.Table:
    """The groups with `male`, `female` and `total`, sums of their counts.

    Negative counts become 0 before they are summed, unless they are allowed, so that the marginals
    agree with the counts that are shown. `male` and `female` are null where only a total was
    measured, and all three where the group is suppressed.

    `screened` has the columns `SCREENED`; the result has `COUNTED`, in the same order.
    """
    counts, offsets = counts_of(screened)
    if not allow_negative_counts:
        counts = np.maximum(counts, 0)
        screened = with_counts(screened, counts)
    sums = np.concatenate([[0], np.cumsum(counts)])
    start, end = offsets[:-1], offsets[1:]
    middle = (start + end) // 2
    hidden = mask_of(screened, "is_suppressed")
    no_cells = hidden | (screened["table"].to_numpy() == 0)
    columns = {
        "total": (sums[end] - sums[start], hidden),
        "male": (sums[middle] - sums[start], no_cells),
        "female": (sums[end] - sums[middle], no_cells),
    }
    for name, (values, is_null) in columns.items():
        screened = screened.append_column(name, pa.array(values, pa.int64(), mask=is_null))
    return screened


def suppress_alone(groups: pa.Table, counterparts: Mapping[str, str]) -> pa.Table:
    """Mark as suppressed every 'alone' group with a larger total than its counterpart.

    Args:
        groups: columns `COUNTED`; a region's groups of one iteration level all among them.
        counterparts: 'alone' iteration code to the 'alone or in any combination' code of the
            same race group.
    """
    iteration, iteration_names = codes_of(groups, "iteration_code")
    place = {name: code for code, name in enumerate(iteration_names)}
    counterpart = np.array(
        [place.get(counterparts.get(name, ""), -1) for name in iteration_names], dtype=np.int64
    )
    hidden = mask_of(groups, "is_suppressed").copy()
    rows = np.flatnonzero(~hidden)
    if not rows.size:
        return groups
    region = codes_of(groups, "region_type")[0].astype(np.int64)
    region_id, region_names = codes_of(groups, "region_id")
    region = (region * len(region_names) + region_id)[rows]
    total = groups["total"].to_numpy(zero_copy_only=False)[rows].astype(np.int64)
    iteration = iteration[rows].astype(np.int64)
    key = region * len(iteration_names) + iteration
    partner = np.where(counterpart[iteration] >= 0, key - iteration + counterpart[iteration], -1)
    match = pd.Index(key).get_indexer(partner)
    exceeds = (match >= 0) & (total > total[match])
    hidden[rows[exceeds]] = True
    return with_mask(groups, "is_suppressed", hidden)
