"""Ingest of a detailed-groups run: public geography and parameters, confidential counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ...census.cef_2020 import IDENTITY_COLUMNS
from ...census.histograms import block_levels
from ...census.invariants import read_geography, write_invariants
from ...ledger.identity import store_identity, whole_digests
from ...ledger.recognition import InputDigest, input_digest, people_digests
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import while_unchanged
from ...runs.stamps import write_frame
from ...tables.findings import InputCheck, accepted_input
from ..paths import (
    Shard,
    counts_file,
    geography_file,
    invariants_file,
    parameters_folder,
    persons_file,
    write_shards,
)
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.mapping import IterationUniverse, iteration_universe
from ..workload.mechanism import MechanismParameters
from ..workload.parameters import (
    copy_parameters,
    parameters_digest,
    read_parameters,
    read_specification,
)
from ..workload.regions import REGION_TYPES, RegionDomain, areas_of, region_domain
from ..workload.specification import MAPPING_FILE, Specification
from .counts import count_groups, read_persons, write_counts, write_persons
from .inputs import AcceptedGroups, check_groups_input
from .region_names import read_names, write_run_names

GROUPS_PER_SHARD = 1 << 19
PARAMETERS = "parameters"
"""Name of the parameters' digest in the manifest."""


def parameters_of(settings: DetailedGroupsSettings, directory: str = "") -> MechanismParameters:
    """The mechanism's parameters of some settings, from their own folder or from a copy of it.

    Raises InputRefused with one sentence about the first fault.
    """
    return read_parameters(
        directory or settings.input.parameters,
        settings.mechanism.config,
        settings.mechanism.wanted,
        infinite=settings.privacy.infinite,
    )


def run_parameters(run: RunDirectory, settings: DetailedGroupsSettings) -> MechanismParameters:
    """The mechanism's parameters of a run that has ingested its input."""
    return parameters_of(settings, str(parameters_folder(run)))


@while_unchanged(lambda run: parameters_folder(run) / MAPPING_FILE, at_most=2)
def run_specification(run: RunDirectory) -> Specification:
    """The specification of a run that has ingested its input."""
    return read_specification(str(parameters_folder(run)))


def run_universe(run: RunDirectory, region_type: str, level: int) -> IterationUniverse:
    """The iterations of a level of a region type."""
    granularity = REGION_TYPES[region_type].granularity
    return iteration_universe(run_specification(run), granularity, level)


@while_unchanged(lambda run, region_type: geography_file(run), at_most=len(REGION_TYPES))
def run_regions(run: RunDirectory, region_type: str) -> RegionDomain:
    """The regions of a type, which are not to be changed."""
    return region_domain(region_type, _areas(run))


def refuse_edited_parameters(run: RunDirectory) -> None:
    """Raise InputRefused if the run's copies of its parameters are not the parameters that it took.

    Its noise is scaled by them, and some may have been drawn.
    """
    taken = run.read_manifest()["input_digests"].get(PARAMETERS)
    if taken is not None and taken != parameters_digest(parameters_folder(run)):
        raise InputRefused(
            f"{parameters_folder(run)} has been edited since the run began; put it back, or start "
            "a new run."
        )


def public_digests(run: RunDirectory) -> dict[str, str]:
    """What the manifest keeps of the input: the keyed digest of its people, its parameters'."""
    return whole_digests(run) | {PARAMETERS: parameters_digest(parameters_folder(run))}


def check_input_of(
    settings: DetailedGroupsSettings, scratch: Path | None = None
) -> InputCheck[AcceptedGroups]:
    """Read and check the input that the settings name; messages show its file names.

    `scratch` is the folder for temporary files of confidential rows.
    """
    specification = read_specification(settings.input.parameters)
    names_of(settings)
    parameters = parameters_of(settings)
    return check_groups_input(settings.input.tables, specification, parameters, scratch)


def names_of(
    settings: DetailedGroupsSettings | DetailedHouseholdsSettings,
) -> dict[tuple[str, str], str]:
    """The names of regions that the settings give; raises InputRefused for a file out of form."""
    address = settings.input.region_names
    return {} if address is None else read_names(address)


def kept_input(
    run: RunDirectory,
    settings: DetailedGroupsSettings | DetailedHouseholdsSettings,
    check: InputCheck[AcceptedGroups],
) -> AcceptedGroups:
    """Write what is the same for persons and householders: outcomes of rules, digests, records in
    confidence, parameters, names and geography. Raises as `ingest_input`."""
    result = accepted_input(run, settings, check)
    store_identity(run, settings, lambda key: input_digests(result, key))
    write_persons(persons_file(run), result.persons)
    copy_parameters(settings.input.parameters, parameters_folder(run))
    write_run_names(run, names_of(settings))
    write_frame(geography_file(run), result.blocks)
    return result


def ingest_input(run: RunDirectory, settings: DetailedGroupsSettings) -> None:
    """Write parameters, geography and shards, and in confidence the persons.

    Keyed digests of the people are stored too, unless the run is not private. Raises InputRefused
    for input that breaks a rule; its counts are then in `confidential/findings.json`, and for
    input that is not confidential in the message too.
    """
    result = kept_input(run, settings, check_input_of(settings, run.confidential))
    if settings.mechanism.units_are_invariant:
        write_invariants(invariants_file(run), result.invariants)
    write_shards(run, shards(run, run_parameters(run, settings).budgets))


def shards(run: RunDirectory, levels: Iterable[tuple[str, int]]) -> Iterator[Shard]:
    """The shards of some levels, from public geography and the specification."""
    for region_type, level in levels:
        n_iterations = len(run_universe(run, region_type, level))
        n_regions = len(run_regions(run, region_type))
        if n_iterations:
            step = max(1, GROUPS_PER_SHARD // n_iterations)
            for number, start in enumerate(range(0, n_regions, step)):
                stop = min(start + step, n_regions)
                yield Shard(region_type, level, f"{number:05d}", start, stop)


def tabulate(run: RunDirectory, region_type: str, level: int) -> None:
    """Write the confidential counts of one level."""
    persons = read_persons(persons_file(run))
    regions = run_regions(run, region_type)
    universe = run_universe(run, region_type, level)
    parts = count_groups(persons, regions.region_of_area, universe)
    write_counts(counts_file(run, region_type, level), parts)


def input_digests(result: AcceptedGroups, key: bytes) -> dict[str, InputDigest]:
    """Keyed digests by which the ledger recognises these people, as those of every product."""
    identity = result.identity
    geocode = result.blocks["block_geocode"].to_numpy().astype(np.int64)
    columns = (geocode[identity.block], identity.age, identity.cenrace, identity.count)
    digest = input_digest("persons", dict(zip(IDENTITY_COLUMNS, columns, strict=True)), key)
    people = people_digests(result.raw, block_levels(geocode), key)
    return {"persons": digest.recognised_by(people)}


@while_unchanged(geography_file, at_most=2)
def _areas(run: RunDirectory) -> pd.DataFrame:
    return areas_of(read_geography(geography_file(run)))[1]
