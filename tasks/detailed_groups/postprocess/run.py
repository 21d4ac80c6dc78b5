"""Postprocessing of a run from public data: its files, thresholds and coterminous sets, and budget
spent twice.

A nation that is one state, a state that is one county: both are measured, with independent noise,
and both measurements are paid for.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from .coterminous import CoterminousSets, coterminous_sets
from .groups import MEASURED, read_groups
from .stages import (
    ALONE,
    COTERMINOUS,
    MARGINALS,
    SUPPRESSED,
    Level,
    PassFiles,
    add_marginals,
    change_levels,
    donate_between_levels,
    levels_after,
    suppress,
    suppress_alone,
    threshold_of,
)


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


def coterminous_of(
    run: RunDirectory, settings: DetailedGroupsSettings, region_pass: str
) -> CoterminousSets:
    """The coterminous regions of a pass, from the geography and declared invariants of a run."""
    return regions_of_pass(*public_blocks(run, settings), region_pass)[1]


def public_blocks(
    run: RunDirectory, settings: DetailedGroupsSettings
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The blocks of a run, and their invariants where these are declared."""
    declared = settings.mechanism.units_are_invariant
    invariants = read_invariants(invariants_file(run)) if declared else None
    return read_geography(geography_file(run)), invariants


def regions_of_pass(
    blocks: pd.DataFrame, invariants: pd.DataFrame | None, region_pass: str
) -> tuple[dict[str, np.ndarray], CoterminousSets]:
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
            files,
            SUPPRESSED,
            stage,
            lambda _, own: add_marginals(own, allow_negative_counts=are_allowed),
        )
    elif stage == COTERMINOUS:
        order = settings.mechanism.summary_levels
        donate_between_levels(files, coterminous_of(run, settings, region_pass), order)
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
        invariants: their housing units and facilities, row by row, where these are declared
            invariant.
    """
    symbol = "epsilon" if parameters.is_pure else "rho"
    sentences = []
    for region_pass in parameters.passes:
        regions, sets = regions_of_pass(blocks, invariants, region_pass)
        order = [name for name in settings.mechanism.summary_levels if name in regions]
        budgets = parameters.budgets_of(region_pass)
        for (region_type, level), budget in budgets.items():
            own = sets.number.get(region_type, {})
            n_regions = len(pd.unique(pd.Series(regions[region_type]).dropna()))
            found = [
                name
                for name in order[: order.index(region_type)]
                if (name, level) in budgets
                and set(own.values()) <= set(sets.number.get(name, {}).values())
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
