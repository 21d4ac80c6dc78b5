"""Postprocessing of measured groups, pass by pass and level by level: one row each, and its stages.

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

A state that is one county, a county with a single tract: the same people live in both, and their
groups were measured with independent noise. Algorithm 4 of [SafeTabP2025] gives all such
coterminous regions the counts of the highest summary level that is not suppressed.

Sets of regions follow from public geography alone. Where a block's housing units
and group-quarters facilities are declared invariants, blocks without either are empty by
declaration, and regions that agree in all other blocks belong together as well. The places where
people were counted have no influence.

Budget is spent twice where all regions of a level are coterminous with others: both measurements
are paid for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..census.invariants import inhabitable, read_geography, read_invariants
from ..noise.distributions import IntegerDistribution
from ..noise.quantiles import inverse_cdf
from ..runs.directory import RunDirectory
from ..runs.stamps import INTEGER_LIST, write_parquet
from .ingest.ingest import (
    Settings,
    geography_file,
    invariants_file,
    measured_folder,
    run_parameters,
    run_specification,
)
from .settings import DetailedGroupsSettings
from .workload.budgets import level_budgets
from .workload.parameters import Level, Parameters
from .workload.regions import COARSE, REGION_TYPES, is_in_pass, region_ids, region_types
from .workload.specification import alone_counterparts
from .workload.tabulations import KEY, SEX_BY_AGE

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


def write_groups(path: Path, table: pa.Table) -> None:
    """Write groups, whole or not at all."""
    write_parquet(
        path, table, compression="zstd", compression_level=1, row_group_size=GROUPS_PER_ROW_GROUP
    )


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


def with_columns(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """The groups with other values of some columns."""
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


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
    return with_columns(groups, {"value": values})


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
    return with_columns(groups, {"is_suppressed": pa.array(hidden)})


DONATED = ("table", "value", "variance", "measured_at")
"""Columns that a group copies from the donor of its set."""

NO_SET = -1


Sets = Mapping[str, Mapping[str, int]]
"""Sets of two or more coterminous regions, at most one of each region type in a set: by region type
and id, the number of the set."""


def sets_of_rows(groups: pa.Table, sets: Sets) -> np.ndarray:
    """The set of each group's region, `NO_SET` if it is in no set; shape (n,), int64."""
    types, type_names = codes_of(groups, "region_type")
    regions, region_names = codes_of(groups, "region_id")
    found = np.full(groups.num_rows, NO_SET, dtype=np.int64)
    for code, name in enumerate(type_names):
        if known := sets.get(name, {}):
            of_region = np.array([known.get(r, NO_SET) for r in region_names], dtype=np.int64)
            here = types == code
            found[here] = of_region[regions[here]]
    return found


def coterminous_sets(
    regions: Mapping[str, Sequence[str | None] | np.ndarray], inhabitable: np.ndarray | None = None
) -> Sets:
    """The coterminous regions among the blocks' regions.

    Args:
        regions: for each region type, highest summary level first, the region id of every block,
            shape (n_blocks,); None where a block is in no region of that type.
        inhabitable: mask of the blocks inhabitable by declared invariants, shape
            (n_blocks,); None if no invariants are declared, and then only regions with identical
            blocks are coterminous. A region without any such block is compared by all its blocks.

    Regions of one type are disjoint, so that a set has at most one of each.
    """
    found: dict[tuple[bool, bytes], list[tuple[str, str]]] = {}
    for name, of_block in regions.items():
        codes, names = pd.factorize(pd.Series(of_block, dtype=object))
        order = np.argsort(codes, kind="stable").astype(np.int32)
        ends = np.cumsum(np.bincount(codes + 1, minlength=len(names) + 1))
        for region, blocks in zip(names, np.split(order, ends)[1:], strict=False):
            held = blocks[:0] if inhabitable is None else blocks[inhabitable[blocks]]
            # Digests take less memory than the numbers of all blocks of a nation, type by type.
            blocks = held if held.size else blocks
            key = bool(held.size), hashlib.blake2b(blocks.tobytes()).digest()
            found.setdefault(key, []).append((name, str(region)))
    sets: dict[str, dict[str, int]] = {name: {} for name in regions}
    for number, same in enumerate(same for same in found.values() if len(same) > 1):
        for name, region in same:
            sets[name][region] = number
    return sets


def copy_coterminous(groups: pa.Table, sets: np.ndarray, order: Sequence[str]) -> pa.Table:
    """Algorithm 4: every group of a set takes the counts of the set's donor.

    The donor is, for each set and iteration, the first group in the order of summary levels
    that is not suppressed; where all are, all remain so. Groups measured in no region of the set
    are not added.

    Args:
        groups: columns `SCREENED`.
        sets: set of each group's region, shape (n,), from `sets_of_rows`.
        order: region types, the donor's first; all types of groups in sets must be among them.

    Raises ValueError for a region type outside the order.
    """
    inside = np.flatnonzero(sets != NO_SET)
    if not inside.size:
        return groups
    hidden = mask_of(groups, "is_suppressed")[inside]
    iteration, _ = codes_of(groups, "iteration_code")
    members = pd.DataFrame(
        {
            "set": sets[inside],
            "iteration": iteration[inside],
            "hidden": hidden,
            "rank": _rank(groups, order)[inside],
            "place": np.arange(inside.size),
        }
    ).sort_values(["hidden", "rank"], kind="stable")
    first = members.groupby(["set", "iteration"])["place"].transform("first")
    donor = first.sort_index().to_numpy()
    donor = np.where(hidden[donor], np.arange(inside.size), donor)
    source = np.arange(groups.num_rows)
    source[inside] = inside[donor]
    taken = groups.select(DONATED).take(pa.array(source))
    shown = pa.array(mask_of(groups, "is_suppressed")[source])
    columns = {name: taken[name] for name in DONATED} | {"is_suppressed": shown}
    return with_columns(groups, columns)


def _rank(groups: pa.Table, order: Sequence[str]) -> np.ndarray:
    codes, names = codes_of(groups, "region_type")
    missing = sorted(set(names) - set(order))
    if missing:
        raise ValueError(f"{missing[0]} is not in the order of summary levels")
    return np.array([order.index(name) for name in names], dtype=np.int64)[codes]


def donate_between_levels(files: PassFiles, sets: Sets, order: Sequence[str]) -> None:
    """Algorithm 4 of [SafeTabP2025] on all levels together.

    Only groups of regions in sets are kept in memory.
    """
    members = {
        level: counted.filter(pa.array(sets_of_rows(counted, sets) != NO_SET))
        for level, counted in levels_after(files, MARGINALS)
    }
    together = pa.concat_tables(members.values()).unify_dictionaries().combine_chunks()
    after = copy_coterminous(together, sets_of_rows(together, sets), order)
    start = 0
    for level, counted in levels_after(files, MARGINALS):
        end = start + members[level].num_rows
        inside = sets_of_rows(counted, sets) != NO_SET
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


def stages_of(settings: DetailedGroupsSettings) -> tuple[str, ...]:
    """The stages in the settings, in their order."""
    optional = {
        COTERMINOUS: settings.mechanism.coterminous,
        ALONE: settings.mechanism.suppress_alone_above_combination,
    }
    return (SUPPRESSED, MARGINALS, *(stage for stage, is_asked in optional.items() if is_asked))


def pass_files(run: RunDirectory, parameters: Parameters, region_pass: str) -> PassFiles:
    """Files of a pass's measurements and of results derived from them."""
    return PassFiles(
        measured=run.root / "measurements" / SEX_BY_AGE.folder / region_pass,
        derived=run.root / "estimates" / SEX_BY_AGE.folder / region_pass,
        levels=tuple(parameters.budgets_of(SEX_BY_AGE.name, region_pass)),
    )


def thresholds_of(run: RunDirectory, parameters: Parameters) -> dict[Level, int | None]:
    """The suppression threshold of every measured level; None for no suppression."""
    chance, has_none = parameters.zero_suppression_chance, parameters.infinite
    budgets = level_budgets(parameters, run_specification(run), SEX_BY_AGE.name)
    return {
        level: threshold_of(level[0], None if has_none else budget.second_stage, chance)
        for level, budget in budgets.items()
    }


def public_blocks(
    run: RunDirectory, settings: DetailedGroupsSettings
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The blocks of a run, and their invariants where these are declared."""
    declared = settings.mechanism.units_are_invariant
    invariants = read_invariants(invariants_file(run)) if declared else None
    return read_geography(geography_file(run)), invariants


def regions_of_pass(
    blocks: pd.DataFrame, invariants: pd.DataFrame | None, region_pass: str
) -> tuple[dict[str, np.ndarray], Sets]:
    """The region of every block of a pass by region type, None for no region, and the coterminous
    regions; `invariants` has all blocks' invariants, if declared.
    """
    here = is_in_pass(blocks, region_pass)
    regions = {
        kind.name: region_ids(kind.name, blocks[here]).to_numpy(dtype=object)
        for kind in region_types(region_pass)
    }
    return regions, coterminous_sets(
        regions, None if invariants is None else inhabitable(invariants[here])
    )


def postprocess(
    run: RunDirectory, settings: DetailedGroupsSettings, region_pass: str, stage: str
) -> None:
    """Run one stage of a pass, from the previous stage's files."""
    parameters = run_parameters(run, settings)
    files = pass_files(run, parameters, region_pass)
    if stage == SUPPRESSED:
        thresholds = thresholds_of(run, parameters)
        change_levels(files, None, stage, lambda level, own: suppress(own, thresholds[level]))
    elif stage == MARGINALS:
        are_allowed = parameters.allow_negative_counts
        change_levels(
            files, SUPPRESSED, stage, lambda _, own: own if are_allowed else cut_counts(own)
        )
    elif stage == COTERMINOUS:
        _, sets = regions_of_pass(*public_blocks(run, settings), region_pass)
        donate_between_levels(files, sets, settings.mechanism.summary_levels)
    else:
        before = stages_of(settings)[stages_of(settings).index(ALONE) - 1]
        counterparts = alone_counterparts(run_specification(run))
        change_levels(files, before, stage, lambda _, own: suppress_alone(own, counterparts))


def groups_to_release(
    run: RunDirectory, settings: Settings, name: str
) -> Iterator[tuple[Level, pa.Table]]:
    """The groups of every level of a tabulation, suppressed ones included, with the columns
    `SCREENED` and more: of persons after the last stage, of households as they were measured, where
    any was.
    """
    parameters = run_parameters(run, settings)
    if isinstance(settings, DetailedGroupsSettings):
        last = stages_of(settings)[-1]
        for region_pass in parameters.passes:
            yield from levels_after(pass_files(run, parameters, region_pass), last)
        return
    for level in parameters.budgets[name]:
        files = sorted(measured_folder(run, name, *level).glob("*.parquet"))
        if files:
            yield level, suppress(read_groups(files, MEASURED), None)


def redundant_spending(
    settings: DetailedGroupsSettings,
    parameters: Parameters,
    blocks: pd.DataFrame,
    invariants: pd.DataFrame | None = None,
) -> tuple[str, ...]:
    """A sentence for each measured level whose regions all occur in another region type too.

    Each names the levels, the later one's cost, and the setting that ends it.
    Regions are compared like coterminous ones, the region types in the order of
    `mechanism.summary_levels`. Levels that repeat only some regions are left out: their cost also
    pays for the others.

    Args:
        blocks: the blocks of the states that are tabulated, as `AcceptedGroups.blocks`.
        invariants: their housing units and facilities, row by row, which count where the settings
            declare them invariant.
    """
    symbol = "epsilon" if parameters.is_pure else "rho"
    sentences = []
    declared = invariants if settings.mechanism.units_are_invariant else None
    for region_pass in parameters.passes:
        regions, sets = regions_of_pass(blocks, declared, region_pass)
        order = [name for name in settings.mechanism.summary_levels if name in regions]
        budgets = parameters.budgets_of(SEX_BY_AGE.name, region_pass)
        for (region_type, level), budget in budgets.items():
            own = sets.get(region_type, {})
            n_regions = len(pd.unique(pd.Series(regions[region_type]).dropna()))
            found = [
                name
                for name in order[: order.index(region_type)]
                if (name, level) in budgets
                and set(own.values()) <= set(sets.get(name, {}).values())
            ]
            if not own or len(own) < n_regions or not found:
                continue
            key = f"mechanism.budgets.{region_type}.{level}"
            fate = (
                f"and takes its counts, so that its own measurements, for {symbol} {budget}, are "
                "discarded wherever those are shown"
                if settings.mechanism.coterminous
                else f"and is measured again for {symbol} {budget}, with other noise"
            )
            sentences.append(
                f"{region_type} at level {level} covers the same blocks as {found[0]}, {fate}: "
                f'{key} = "0" saves it'
            )
    return tuple(sentences)


def redundant_spending_of_run(
    run: RunDirectory, settings: DetailedGroupsSettings
) -> tuple[str, ...]:
    """`redundant_spending` of a run that has ingested its input."""
    parameters = run_parameters(run, settings)
    return redundant_spending(settings, parameters, *public_blocks(run, settings))
