"""Ingest of a run: public geography, parameters and totals, confidential persons or householders.

The tables of households are chosen by the noisy totals in the release of a finished detailed-groups
run. Suppressed groups have no total, and totals copied among coterminous regions are included. They
are public, and so is the choice. Only groups of the regions and iterations that a run measures are
kept. Names of regions, if the settings give a file of them, are public and kept with the run.

In the run directory `parameters/` holds copies of the parameters' files, `spine/` the public
geography and the shards: consecutive regions of one type with all iterations of one level.
Measurements are in `measurements/detailed_groups/<pass>/<region type>/<level>/`, the first stage's
totals in folders of these names below `measurements/detailed_groups_stage_1/`. Persons and true
counts are in `confidential/detailed_groups/`.

A run of households by detailed group has its measurements in
`measurements/detailed_households/<t3|t4>/<pass>/<region type>/<level>/`, and below `spine/` the
totals of the finished run that chose their tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ...census.cef_2020 import IDENTITY_COLUMNS
from ...census.histograms import block_levels
from ...census.invariants import read_geography
from ...ledger.identity import store_identity, whole_digests
from ...ledger.recognition import InputDigest, input_digest, people_digests
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import cache_unchanged, read_record, write_text
from ...runs.objects import read_arrays, write_arrays
from ...runs.settings_files import settings_of_finished
from ...runs.stamps import write_frame
from ...tables.columns import temporary_files_in
from ...tables.findings import InputCheck, accepted_input
from ...tables.sources import InputFile, read_public_text
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.parameters import (
    Parameters,
    choose_table,
    copy_parameters,
    parameters_digest,
    read_parameters,
    read_specification,
)
from ..workload.regions import REGION_TYPES, RegionDomain, areas_of, region_domain
from ..workload.specification import (
    MAPPING_FILE,
    IterationUniverse,
    Specification,
    iteration_universe,
)
from ..workload.tabulations import KEY, NOT_MEASURED, TABULATIONS
from .counts import CountedPersons, count_groups, write_counts
from .inputs import AcceptedGroups, check_groups_input

STAGE_1 = "detailed_groups_stage_1"


@dataclass(frozen=True)
class Shard:
    """Regions of one type, from position `start` to before `stop`, with a level's iterations."""

    region_type: str
    level: int
    name: str
    start: int
    stop: int


def parameters_folder(run: RunDirectory) -> Path:
    """Copies of `config.json` and the specification files."""
    return run.root / "parameters"


def geography_file(run: RunDirectory) -> Path:
    """The geography frame: public."""
    return run.root / "spine" / "geography.parquet"


def invariants_file(run: RunDirectory) -> Path:
    """The declared invariants of every block, where the input is census tables."""
    return run.root / "spine" / "invariants.parquet"


def persons_file(run: RunDirectory) -> Path:
    """Stem of the confidential persons by area and combination of codes."""
    return run.confidential / "detailed_groups" / "persons"


def counts_file(run: RunDirectory, region_type: str, level: int) -> Path:
    """The confidential counts of one population group level."""
    return run.confidential / "detailed_groups" / region_type / f"{level}.parquet"


def measured_folder(run: RunDirectory, name: str, region_type: str, level: int) -> Path:
    """The released noisy counts of a tabulation and level, one file a shard."""
    return _folder(run, TABULATIONS[name].folder, region_type, level)


def measured_file(run: RunDirectory, name: str, shard: Shard) -> Path:
    """The noisy counts of a tabulation and shard: one row for each of its measured groups."""
    return measured_folder(run, name, shard.region_type, shard.level) / f"{shard.name}.parquet"


def stage_1_file(run: RunDirectory, shard: Shard) -> Path:
    """The noisy totals that chose the tables of a shard's groups."""
    return _folder(run, STAGE_1, shard.region_type, shard.level) / f"{shard.name}.parquet"


def group_totals_file(run: RunDirectory) -> Path:
    """The noisy totals of persons by which tables of households are chosen: public."""
    return run.root / "spine" / "group_totals.parquet"


def shards_file(run: RunDirectory) -> Path:
    """The shards; written last by the ingest, so that their file marks its completion."""
    return run.root / "spine" / "detailed_groups_shards.json"


def write_shards(run: RunDirectory, shards: Iterable[Shard]) -> None:
    """Store the shards, so that later steps and later versions of the code use the same ones."""
    write_text(shards_file(run), json.dumps([asdict(shard) for shard in shards]))


def read_shards(run: RunDirectory) -> list[Shard]:
    """The shards of a run, highest summary level first."""
    return [Shard(**item) for item in read_record(shards_file(run))]


def shards_of(run: RunDirectory, region_type: str, level: int) -> list[Shard]:
    """The shards of a level."""
    key = (region_type, level)
    return [shard for shard in read_shards(run) if (shard.region_type, shard.level) == key]


def truth_files(run: RunDirectory) -> list[Path]:
    """The confidential counts of all levels. A level without groups, such as AIANNH areas in a
    state without any, has no file.
    """
    files = (counts_file(run, shard.region_type, shard.level) for shard in read_shards(run))
    return [*dict.fromkeys(files)]


def _folder(run: RunDirectory, kind: str, region_type: str, level: int) -> Path:
    region_pass = REGION_TYPES[region_type].region_pass
    return run.root / "measurements" / kind / region_pass / region_type / str(level)


Settings = DetailedGroupsSettings | DetailedHouseholdsSettings

GROUPS_PER_SHARD = 1 << 19
PARAMETERS = "parameters"
"""Name of the parameters' digest in the manifest."""


def parameters_of(settings: Settings, directory: str = "") -> Parameters:
    """The parameters of every tabulation, from the settings' own folder or from a copy of it.

    Raises InputRefused with one sentence about the first fault.
    """
    own = settings.mechanism
    found = read_parameters(
        directory or settings.input.parameters,
        own.config,
        infinite=settings.privacy.infinite,
        tabulations=settings.TABULATIONS,
    )
    return replace(found, coverage=own.coverage, wanted=own.wanted)


def run_parameters(run: RunDirectory, settings: Settings) -> Parameters:
    """The parameters of a run that has ingested its input."""
    return parameters_of(settings, str(parameters_folder(run)))


@cache_unchanged(lambda run: parameters_folder(run) / MAPPING_FILE, at_most=2)
def run_specification(run: RunDirectory) -> Specification:
    """The specification of a run that has ingested its input."""
    return read_specification(str(parameters_folder(run)))


def run_universe(run: RunDirectory, region_type: str, level: int) -> IterationUniverse:
    """The iterations of a level of a region type."""
    granularity = REGION_TYPES[region_type].granularity
    return iteration_universe(run_specification(run), granularity, level)


@cache_unchanged(lambda run, region_type: geography_file(run), at_most=len(REGION_TYPES))
def run_regions(run: RunDirectory, region_type: str) -> RegionDomain:
    """The regions of a type; not to be modified."""
    return region_domain(region_type, _areas(run))


def refuse_edited_parameters(run: RunDirectory) -> None:
    """Raise InputRefused if the run's copies of its parameters have changed.

    They scale its noise, some of which may have been drawn.
    """
    taken = run.read_manifest()["input_digests"].get(PARAMETERS)
    if taken is not None and taken != parameters_digest(parameters_folder(run)):
        raise InputRefused(
            f"{parameters_folder(run)} has been edited since the run began; put it back, or start "
            "a new run."
        )


def public_digests(run: RunDirectory) -> dict[str, str]:
    """Digests of the input in the manifest: the keyed one of its people, and its parameters'."""
    return whole_digests(run) | {PARAMETERS: parameters_digest(parameters_folder(run))}


def check_input_of(settings: Settings) -> InputCheck[AcceptedGroups]:
    """Read and check the input that the settings name, the finished run unless it is still to come;
    messages name the files.

    Raises InputRefused.
    """
    specification = read_specification(settings.input.parameters)
    if isinstance(settings, DetailedHouseholdsSettings) and not settings.input.awaited:
        read_group_totals(settings, specification)
    return _check_tables(settings, specification)


def _check_tables(settings: Settings, specification: Specification) -> InputCheck[AcceptedGroups]:
    names_of(settings)
    return check_groups_input(settings.input.tables, specification, parameters_of(settings))


def names_of(settings: Settings) -> dict[tuple[str, str], str]:
    """The names of regions from the settings; raises InputRefused for a malformed file."""
    address = settings.input.region_names
    return {} if address is None else read_names(address)


def ingest_input(run: RunDirectory, settings: Settings) -> None:
    """Write parameters, geography and shards, and in confidence the persons or householders.

    Keyed digests of the people are stored too, unless the run is not private. Raises InputRefused
    for input that breaks a rule; its counts are then in `confidential/findings.json`, and for
    input that is not confidential in the message too. Raises it also for a finished run of groups
    that cannot be used, and for a pass without any of its groups.
    """
    specification = read_specification(settings.input.parameters)
    totals = None
    if isinstance(settings, DetailedHouseholdsSettings):
        totals = read_group_totals(settings, specification)
    with temporary_files_in(run.confidential):
        check = _check_tables(settings, specification)
    result = accepted_input(run, settings, check)
    store_identity(run, settings, lambda key: input_digests(result, key))
    write_arrays(persons_file(run), vars(result.persons))
    copy_parameters(settings.input.parameters, parameters_folder(run))
    write_run_names(run, names_of(settings))
    write_frame(geography_file(run), result.blocks)
    if isinstance(settings, DetailedGroupsSettings) and settings.mechanism.units_are_invariant:
        write_frame(invariants_file(run), result.invariants)
    parameters = run_parameters(run, settings)
    cut = shards(run, parameters.levels())
    if totals is not None:
        write_totals(run, parameters, totals)
        cut = (own for own in cut if (chosen_tables(run, own, ()) != NOT_MEASURED).any())
    write_shards(run, cut)


def write_totals(run: RunDirectory, parameters: Parameters, totals: pd.DataFrame) -> None:
    """Keep the totals of the groups that the run measures with its public geography, level by level
    in the order of its groups; raises InputRefused for a pass without any.
    """
    parts = []
    for region_type, level in parameters.levels():
        own = totals[totals["region_type"] == region_type]
        own = own[own["region_id"].isin(set(run_regions(run, region_type).ids))]
        own = own[own["iteration_code"].isin(set(run_universe(run, region_type, level).codes))]
        parts.append(own.sort_values(["region_id", "iteration_code"]))
    chosen = pd.concat(parts, ignore_index=True)
    measured = {REGION_TYPES[name].region_pass for name in chosen["region_type"].unique()}
    for region_pass in parameters.passes:
        if region_pass not in measured:
            raise InputRefused(
                f"input.groups has no group of the pass run_{region_pass} in these regions; name a "
                f"run that has them, or set run_{region_pass} to false."
            )
    write_frame(group_totals_file(run), chosen[[*KEY, "count"]])


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
    persons = CountedPersons(**read_arrays(persons_file(run)))
    regions = run_regions(run, region_type)
    universe = run_universe(run, region_type, level)
    parts = count_groups(persons, regions.region_of_area, universe)
    write_counts(counts_file(run, region_type, level), parts)


def input_digests(result: AcceptedGroups, key: bytes) -> dict[str, InputDigest]:
    """Keyed digests by which the ledger recognises these people, as in every product."""
    identity = result.identity
    geocode = result.blocks["block_geocode"].to_numpy().astype(np.int64)
    columns = (geocode[identity.block], identity.age, identity.cenrace, identity.count)
    digest = input_digest("persons", dict(zip(IDENTITY_COLUMNS, columns, strict=True)), key)
    people = people_digests(result.raw, block_levels(geocode), key)
    return {"persons": digest.recognised_by(people, key)}


@cache_unchanged(geography_file, at_most=2)
def _areas(run: RunDirectory) -> pd.DataFrame:
    return areas_of(read_geography(geography_file(run)))[1]


T1 = "t1.csv"


def read_group_totals(
    settings: DetailedHouseholdsSettings, specification: Specification
) -> pd.DataFrame:
    """The totals of the finished run that the settings name: columns `KEY` and `count`.

    Raises InputRefused unless it is a finished detailed-groups run on the same people and
    specification, and for a run that is not private if this one is.
    """
    run = RunDirectory(Path(settings.input.groups))
    earlier = settings_of_finished(DetailedGroupsSettings, run, "input.groups", T1)
    if earlier.privacy.dataset != settings.privacy.dataset:
        raise InputRefused(
            f"input.groups is of the dataset {earlier.privacy.dataset}; name a run of "
            f"{settings.privacy.dataset}."
        )
    if settings.is_private and not earlier.is_private:
        raise InputRefused(
            "input.groups: the run is stamped NOT PRIVATE, so its choices give no protection; name "
            "a release whose noise protects."
        )
    known = read_specification(str(parameters_folder(run)))
    if _content(known) != _content(specification):
        raise InputRefused(
            "input.groups is a run with another specification of groups; name one with the "
            "specification in input.parameters."
        )
    totals = pd.read_csv(run.release / T1, sep="|", dtype=str, comment="#")
    totals.columns = [name.lower() for name in totals.columns]
    return totals.astype({"count": np.int64})


def _content(specification: Specification) -> tuple[object, ...]:
    pairs = set(specification.pairs)
    return dict(specification.names), dict(specification.iterations), pairs


@cache_unchanged(group_totals_file, at_most=2)
def run_totals(run: RunDirectory) -> pd.DataFrame:
    """The totals kept with a run."""
    return pq.read_table(group_totals_file(run)).to_pandas()


def chosen_tables(run: RunDirectory, shard: Shard, thresholds: tuple[int, ...]) -> np.ndarray:
    """The table of each group of households of a shard, `NOT_MEASURED` without a total; int8,
    region by region.

    A group's table is the number of thresholds that its noisy total of persons reaches, which the
    run keeps.
    """
    totals, universe = run_totals(run), run_universe(run, shard.region_type, shard.level)
    own = totals[totals["region_type"] == shard.region_type]
    ids = run_regions(run, shard.region_type).ids[shard.start : shard.stop]
    region = pd.Index(ids).get_indexer(own["region_id"])
    iteration = pd.Index(universe.codes).get_indexer(own["iteration_code"])
    here = (region >= 0) & (iteration >= 0)
    table = np.full((shard.stop - shard.start) * len(universe), NOT_MEASURED, dtype=np.int8)
    position = region[here] * len(universe) + iteration[here]
    table[position] = choose_table(own["count"].to_numpy()[here], thresholds)
    return table


NAME_COLUMNS = ("REGION_TYPE", "REGION_ID", "REGION_NAME")
RUN_FILE = "region_names.json"


def read_names(address: str) -> dict[tuple[str, str], str]:
    """The names in a file, by region type and id.

    Raises InputRefused for other columns, an unknown region type, or a region that is named twice
    or not at all.
    """
    file = InputFile("region_names", address, address.rpartition("/")[2])
    lines = read_public_text(file).splitlines()
    if not lines or lines[0].split("|") != list(NAME_COLUMNS):
        raise InputRefused(
            f"{file.name}: the first line must be {'|'.join(NAME_COLUMNS)}; correct the columns."
        )
    names: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("|")
        if len(fields) != len(NAME_COLUMNS) or fields[0] not in REGION_TYPES or not all(fields):
            raise InputRefused(
                f"{file.name}: line {number} must have a region type ({', '.join(REGION_TYPES)}), "
                "an id and a name; correct it."
            )
        if (fields[0], fields[1]) in names:
            raise InputRefused(
                f"{file.name}: line {number} names {fields[0]} {fields[1]} again; keep one name."
            )
        names[fields[0], fields[1]] = fields[2]
    return names


def write_run_names(run: RunDirectory, names: Mapping[tuple[str, str], str]) -> None:
    """Keep the names with the run's public geography."""
    rows = [(*region, name) for region, name in names.items()]
    write_text(run.root / "spine" / RUN_FILE, json.dumps(rows))


def read_run_names(run: RunDirectory) -> dict[tuple[str, str], str]:
    """The names kept with a run; empty if none were given."""
    rows = read_record(run.root / "spine" / RUN_FILE)
    return {(kind, own): name for kind, own, name in rows}
