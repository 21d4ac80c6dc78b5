"""Ingest of a detailed-households run: public geography, parameters and totals, confidential
householders.
"""

from __future__ import annotations

from pathlib import Path

from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...tables.findings import InputCheck
from ..paths import Shard, parameters_folder, write_shards
from ..settings import DetailedHouseholdsSettings
from ..workload.households import HouseholdParameters
from ..workload.parameters import read_parameters, read_specification
from ..workload.regions import REGION_TYPES
from ..workload.specification import Specification
from ..workload.tabulations import HOUSEHOLD_TABULATIONS, NOT_MEASURED
from .group_totals import chosen_tables, measured_totals, read_group_totals, write_totals
from .ingest import kept_input, names_of, run_regions, run_universe, shards
from .inputs import AcceptedGroups, check_groups_input


def parameters_of(settings: DetailedHouseholdsSettings, directory: str = "") -> HouseholdParameters:
    """The parameters of both tabulations, from the settings' own folder or from a copy of it.

    Raises InputRefused with one sentence about the first fault.
    """
    folder, infinite = directory or settings.input.parameters, settings.privacy.infinite
    return HouseholdParameters(
        {
            name: read_parameters(
                folder, settings.mechanism.config, infinite=infinite, keys=tabulation.keys
            )
            for name, tabulation in HOUSEHOLD_TABULATIONS.items()
        }
    )


def run_parameters(run: RunDirectory, settings: DetailedHouseholdsSettings) -> HouseholdParameters:
    """The parameters of a run that has ingested its input."""
    return parameters_of(settings, str(parameters_folder(run)))


def check_input_of(
    settings: DetailedHouseholdsSettings, scratch: Path | None = None
) -> InputCheck[AcceptedGroups]:
    """Read and check the input that the settings name, the finished run unless it is still to come.

    `scratch` is the folder for temporary files of confidential rows. Raises InputRefused.
    """
    specification = read_specification(settings.input.parameters)
    if not settings.input.awaited:
        read_group_totals(settings, specification)
    return _check_householders(settings, specification, scratch)


def _check_householders(
    settings: DetailedHouseholdsSettings, specification: Specification, scratch: Path | None
) -> InputCheck[AcceptedGroups]:
    names_of(settings)
    tables, parameters = settings.input.tables, parameters_of(settings)
    return check_groups_input(tables, specification, parameters.first, scratch, of_households=True)


def ingest_input(run: RunDirectory, settings: DetailedHouseholdsSettings) -> None:
    """Write parameters, geography, totals and shards, and in confidence the householders.

    Raises InputRefused as the ingest of persons does, for a finished run that cannot be used, and
    for a pass of which it has no group.
    """
    specification = read_specification(settings.input.parameters)
    totals = read_group_totals(settings, specification)
    kept_input(run, settings, _check_householders(settings, specification, run.confidential))
    parameters = run_parameters(run, settings)
    levels = parameters.levels()
    regions = {region_type: run_regions(run, region_type) for region_type, _ in levels}
    universes = {level: run_universe(run, *level) for level in levels}
    chosen = measured_totals(totals, regions, universes)
    measured = {REGION_TYPES[name].region_pass for name in chosen["region_type"].unique()}
    for region_pass in parameters.passes:
        if region_pass not in measured:
            raise InputRefused(
                f"input.groups has no group of the pass run_{region_pass} in these regions; name a "
                f"run that has them, or set run_{region_pass} to false."
            )
    write_totals(run, chosen)

    def has_tables(shard: Shard) -> bool:
        universe = universes[shard.region_type, shard.level]
        table = chosen_tables(chosen, shard, regions[shard.region_type], universe, ())
        return bool((table != NOT_MEASURED).any())

    # Where no group has a total, there is nothing to measure.
    write_shards(run, filter(has_tables, shards(run, levels)))
