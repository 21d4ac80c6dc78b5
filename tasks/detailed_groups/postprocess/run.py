"""Postprocessing of a run from public data: stages, thresholds, and coterminous regions.

A state that is one county, a county with a single tract: the same people live in both, and their
groups were measured with independent noise. Algorithm 4 of [SafeTabP2025] gives all regions
of such a set the counts of the highest summary level that is not suppressed.

Sets of regions follow from public geography alone. Where a block's housing units
and group-quarters facilities are declared invariants, blocks without either are empty by
declaration, and regions that agree in all other blocks belong together as well. The places where
people were counted have no influence.

Budget is spent twice where all regions of a level are coterminous with others: both measurements
are paid for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from ...census.invariants import inhabitable, read_geography, read_invariants
from ...runs.directory import RunDirectory
from ..ingest.ingest import Settings, run_parameters, run_specification
from ..paths import geography_file, invariants_file, measured_folder
from ..settings import DetailedGroupsSettings
from ..workload.budgets import level_budgets
from ..workload.parameters import MechanismParameters
from ..workload.regions import is_in_pass, region_ids, region_types
from ..workload.specification import alone_counterparts
from ..workload.tabulations import SEX_BY_AGE
from .groups import (
    ALONE,
    COTERMINOUS,
    MARGINALS,
    MEASURED,
    SUPPRESSED,
    Level,
    PassFiles,
    change_levels,
    codes_of,
    cut_counts,
    levels_after,
    mask_of,
    read_groups,
    suppress,
    suppress_alone,
    threshold_of,
    with_suppressed,
    write_groups,
)

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
    for name in DONATED:
        groups = groups.set_column(groups.schema.get_field_index(name), name, taken[name])
    shown = mask_of(groups, "is_suppressed")[source]
    return with_suppressed(groups, shown)


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


def pass_files(run: RunDirectory, parameters: MechanismParameters, region_pass: str) -> PassFiles:
    """Files of a pass's measurements and of results derived from them."""
    return PassFiles(
        measured=run.root / "measurements" / SEX_BY_AGE.folder / region_pass,
        derived=run.root / "estimates" / SEX_BY_AGE.folder / region_pass,
        levels=tuple(parameters.budgets_of(region_pass)),
    )


def thresholds_of(run: RunDirectory, parameters: MechanismParameters) -> dict[Level, int | None]:
    """The suppression threshold of every measured level; None for no suppression."""
    chance, has_none = parameters.zero_suppression_chance, parameters.infinite
    return {
        level: threshold_of(level[0], None if has_none else budget.second_stage, chance)
        for level, budget in level_budgets(parameters, run_specification(run)).items()
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
    parameters = run_parameters(run, settings).first
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
            yield from levels_after(pass_files(run, parameters.first, region_pass), last)
        return
    for level in parameters.of[name].budgets:
        files = sorted(measured_folder(run, name, *level).glob("*.parquet"))
        if files:
            yield level, suppress(read_groups(files, MEASURED), None)


def redundant_spending(
    settings: DetailedGroupsSettings,
    parameters: MechanismParameters,
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
        budgets = parameters.budgets_of(region_pass)
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
    parameters = run_parameters(run, settings).first
    return redundant_spending(settings, parameters, *public_blocks(run, settings))
