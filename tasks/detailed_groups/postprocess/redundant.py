"""Redundant spending on detailed groups: levels whose regions repeat those of another region type.

A nation that is one state, a state that is one county: both are measured, with independent noise,
and both measurements are paid for. What is said here follows from public geography alone.
"""

from __future__ import annotations

import pandas as pd

from ...runs.directory import RunDirectory
from ..ingest.ingest import run_parameters
from ..settings import DetailedGroupsSettings
from ..workload.mechanism import MechanismParameters
from .run import public_blocks, regions_of_pass


def redundant_spending(
    settings: DetailedGroupsSettings,
    parameters: MechanismParameters,
    blocks: pd.DataFrame,
    invariants: pd.DataFrame | None = None,
) -> tuple[str, ...]:
    """A sentence for each measured level all regions of which another region type has too.

    Each says which levels these are, what the later one costs, and the setting that ends it.
    Regions are compared as the coterminous ones are, the region types in the order of
    `mechanism.summary_levels`. Levels that repeat some regions and not all are left out: what they
    cost is spent on the others as well.

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
            before = order[: order.index(region_type)]
            repeated = {
                name: set(own.values()) & set(sets.number.get(name, {}).values())
                for name in before
                if (name, level) in budgets
            }
            found = [name for name, numbers in repeated.items() if len(numbers) == n_regions]
            if not n_regions or not found:
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
