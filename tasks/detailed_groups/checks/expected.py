"""What runs of detailed groups and households promise, in the words of the independent checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from ....validation.detailed_groups.universe import (
    ExpectedLevel,
    ExpectedRun,
    Iteration,
    MeasuredLevel,
    expected_levels,
    identical_regions,
    region_of_blocks,
)
from ...census.invariants import inhabitable, read_geography, read_invariants
from ...runs.directory import RunDirectory
from ..ingest.household_ingest import run_parameters as household_parameters
from ..ingest.ingest import run_parameters, run_specification
from ..paths import geography_file, invariants_file
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.mapping import alone_counterparts
from ..workload.mechanism import MechanismParameters
from ..workload.regions import REGION_TYPES, is_in_pass
from ..workload.specification import Specification


def expected_run(run: RunDirectory, settings: DetailedGroupsSettings) -> ExpectedRun:
    """The promise of a run's settings, specification, geography and declared invariants."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    geography, mechanism = read_geography(geography_file(run)), settings.mechanism
    return replace(
        _promised(parameters, specification, geography, settings),
        zero_suppression_chance=parameters.zero_suppression_chance,
        donor_order=mechanism.summary_levels if mechanism.coterminous else None,
        coterminous=_coterminous(run, settings, geography) if mechanism.coterminous else {},
        counterparts=alone_counterparts(specification)
        if mechanism.suppress_alone_above_combination
        else None,
        compares_cells=mechanism.suppress_alone_above_combination == "cells",
    )


def expected_runs(
    run: RunDirectory, settings: DetailedHouseholdsSettings
) -> Mapping[str, ExpectedRun]:
    """The promise of a run's settings, specification and geography, by name of a tabulation."""
    parameters, specification = household_parameters(run, settings), run_specification(run)
    geography = read_geography(geography_file(run))
    return {
        name: _promised(own, specification, geography, settings)
        for name, own in parameters.of.items()
    }


def _promised(
    parameters: MechanismParameters,
    specification: Specification,
    geography: pd.DataFrame,
    settings: DetailedGroupsSettings | DetailedHouseholdsSettings,
) -> ExpectedRun:
    """What runs of persons and of households promise alike."""
    return ExpectedRun(
        levels=levels_to_be_measured(parameters, specification, geography),
        passes={name: kind.region_pass for name, kind in REGION_TYPES.items()},
        is_pure=parameters.is_pure,
        stage_1_fraction=parameters.stage_1_fraction,
        allow_negative_counts=parameters.allow_negative_counts,
        is_private=settings.is_private,
        confidence=settings.mechanism.coverage,
    )


def levels_to_be_measured(
    parameters: MechanismParameters, specification: Specification, geography: pd.DataFrame
) -> tuple[ExpectedLevel, ...]:
    """The levels that the checks work out from the plain facts of an inputs' specification."""
    measured = [
        MeasuredLevel(*level, None if parameters.infinite else budget, parameters.thresholds[level])
        for level, budget in parameters.budgets.items()
    ]
    iterations = {
        code: Iteration(own.level, own.is_alone, own.detailed_only, own.coarse_only)
        for code, own in specification.iterations.items()
    }
    blocks = {name: geography[is_in_pass(geography, name)] for name in parameters.passes}
    return expected_levels(
        measured, iterations, specification.pairs, parameters.max_race_codes, blocks
    )


def _coterminous(
    run: RunDirectory, settings: DetailedGroupsSettings, geography: pd.DataFrame
) -> dict[str, dict[str, int]]:
    """The set of every coterminous region; no block is in two passes."""
    used = None
    if settings.mechanism.units_are_invariant:
        used = inhabitable(read_invariants(invariants_file(run))).tolist()
    regions = {}
    for name, kind in REGION_TYPES.items():
        ids = np.array(region_of_blocks(name, geography), dtype=object)
        ids[~is_in_pass(geography, kind.region_pass)] = None
        regions[name] = ids.tolist()
    return identical_regions(regions, used)
