"""What a detailed-households run promises, in the words of the independent checks."""

from __future__ import annotations

from collections.abc import Mapping

from ....validation.detailed_groups.universe import ExpectedRun
from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..ingest.household_ingest import run_parameters
from ..ingest.ingest import run_specification
from ..paths import geography_file
from ..settings import DetailedHouseholdsSettings
from ..workload.regions import REGION_TYPES
from .expected import is_in_pass, levels_to_be_measured


def expected_runs(
    run: RunDirectory, settings: DetailedHouseholdsSettings
) -> Mapping[str, ExpectedRun]:
    """The promise of a run's settings, specification and geography, by name of a tabulation."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    geography = read_geography(geography_file(run))
    blocks = {name: geography[is_in_pass(geography, name)] for name in parameters.passes}
    return {
        name: ExpectedRun(
            levels=levels_to_be_measured(
                own, specification, blocks, infinite=settings.privacy.infinite
            ),
            passes={kind.name: kind.region_pass for kind in REGION_TYPES.values()},
            is_pure=own.is_pure,
            stage_1_fraction=own.stage_1_fraction,
            zero_suppression_chance=None,
            allow_negative_counts=own.allow_negative_counts,
            donor_order=None,
            coterminous={},
            counterparts=None,
            is_private=settings.is_private,
            confidence=settings.mechanism.coverage,
        )
        for name, own in parameters.of.items()
    }
