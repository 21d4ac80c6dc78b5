"""The postprocessing of a pass, level by level: population groups, one row each, and its steps.

`region_type`, `region_id` and `iteration_code` name the group. `table` is the statistics level
that the group received: 0 a total, 1 to 3 sex by age in 4, 9 and 23 bins. `value` holds its counts,
row-major sex by age (men first), a single one for a total. `variance` is the noise variance of each
count and `measured_at` the region type whose measurement the counts are. A group that is not to be
released keeps its row, with `is_suppressed` set, so that a later step can still give it the counts
of a coterminous region.

The stages go through files of the run directory:

    measurements -> suppressed -> marginals -> coterminous -> alone

Each stage reads the previous stage's output, one file for each population group level, so that the
largest level determines the memory. The last two stages are optional, by the settings.
Suppression comes first, as in the production program, which suppresses measured counts and then
clips at zero. Nothing is read but noisy measurements, public geography and declared invariants.

The marginals step makes negative counts 0, unless they are allowed, so that totals and sex
marginals are sums of the counts that are shown.

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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import inverse_cdf
from ...runs.stamps import INTEGER_LIST, write_parquet
from ..workload.regions import COARSE, REGION_TYPES
from ..workload.tabulations import KEY

CODE = pa.dictionary(pa.int32(), pa.string())

MEASURED = pa.schema(
    [
        *(pa.field(name, CODE) for name in KEY),
        ("table", pa.int8()),
        ("total_only", pa.bool_()),
        ("value", INTEGER_LIST),
        ("variance", pa.float64()),
    ]
)
"""Columns that the steps read from a file of noisy measurements."""

SCREENED = MEASURED.append(pa.field("is_suppressed", pa.bool_())).append(
    pa.field("measured_at", CODE)
)
"""Columns of groups after suppression and every later step."""

GROUPS_PER_ROW_GROUP = 1 << 18


def read_groups(paths: Iterable[Path], schema: pa.Schema) -> pa.Table:
    """The groups of some files, one chunk a column, in the order of the files."""
    codes = [field.name for field in schema if field.type == CODE]
    tables = []
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=codes) as file:
            tables.append(file.read(columns=schema.names).select(schema.names))
    if not tables:
        return schema.empty_table()
    return pa.concat_tables(tables).unify_dictionaries().cast(schema).combine_chunks()


def write_groups(path: Path, table: pa.Table) -> Path:
    """Write groups, whole or not at all."""
    write_parquet(
        path, table, compression="zstd", compression_level=1, row_group_size=GROUPS_PER_ROW_GROUP
    )
    return path


def codes_of(table: pa.Table, name: str) -> tuple[np.ndarray, list[str]]:
    """A dictionary-encoded column as positions, shape (n,) int32, in a list of distinct texts."""
    column = table[name].combine_chunks()
    return column.indices.to_numpy(zero_copy_only=False), column.dictionary.to_pylist()


def counts_of(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """All counts one after the other, and offsets of each group's, shape (n + 1,)."""
    column = table["value"].combine_chunks()
    offsets = column.offsets.to_numpy().astype(np.int64)
    flat = column.values.to_numpy()[offsets[0] : offsets[-1]]
    return flat, offsets - offsets[0]


def totals_of(table: pa.Table) -> np.ndarray:
    """The sum of each group's counts, shape (n,), int64."""
    counts, offsets = counts_of(table)
    return np.diff(np.concatenate([[0], np.cumsum(counts)])[offsets])


def with_suppressed(table: pa.Table, mask: np.ndarray) -> pa.Table:
    """The groups with another mask of those that are suppressed."""
    return table.set_column(
        table.schema.get_field_index("is_suppressed"), "is_suppressed", pa.array(mask)
    )


def mask_of(table: pa.Table, name: str) -> np.ndarray:
    """A column of truth values, shape (n,)."""
    return table[name].to_numpy()


def code_positions(table: pa.Table, name: str, order: Sequence[str]) -> np.ndarray:
    """Position of each row's text in `order`, -1 if absent; shape (n,), int64."""
    codes, texts = codes_of(table, name)
    return pd.Index(order, dtype=object).get_indexer(pd.Index(texts, dtype=object))[codes]


def select_released(table: pa.Table) -> pa.Table:
    """The groups that are not suppressed."""
    return table.filter(pc.invert(table["is_suppressed"]))


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
    screened = measured.append_column("is_suppressed", pa.array(is_suppressed))
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
    schema = MEASURED if stage is None else SCREENED
    for level in files.levels:
        paths = files.measurements(level) if stage is None else [files.groups(stage, level)]
        yield level, read_groups(paths, schema)


def change_levels(
    files: PassFiles, before: str | None, stage: str, change: Callable[[Level, pa.Table], pa.Table]
) -> None:
    """Write the groups of every level after a stage, from the output of the one `before` it."""
    for level, groups in levels_after(files, before):
        write_groups(files.groups(stage, level), change(level, groups))


def cut_counts(groups: pa.Table) -> pa.Table:
    """The groups with counts of 0 in place of negative ones; columns `SCREENED`."""
    counts, offsets = counts_of(groups)
    values = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(np.maximum(counts, 0)), type=INTEGER_LIST
    )
    return groups.set_column(groups.schema.get_field_index("value"), "value", values)


def suppress_alone(groups: pa.Table, counterparts: Mapping[str, str]) -> pa.Table:
    """Mark as suppressed every 'alone' group with a larger total than its counterpart.

    Args:
        groups: columns `SCREENED`; a region's groups of one iteration level all among them.
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
    total = totals_of(groups)[rows]
    iteration = iteration[rows].astype(np.int64)
    key = region * len(iteration_names) + iteration
    partner = np.where(counterpart[iteration] >= 0, key - iteration + counterpart[iteration], -1)
    match = pd.Index(key).get_indexer(partner)
    exceeds = (match >= 0) & (total > total[match])
    hidden[rows[exceeds]] = True
    return with_suppressed(groups, hidden)
