"""Paths of a detailed-groups run's own artifacts.

`parameters/` holds copies of the parameters' files, `spine/` the public geography and the shards:
consecutive regions of one type with all iterations of one level. Measurements are in
`measurements/detailed_groups/<pass>/<region type>/<level>/`, the first stage's totals in folders of
these names below `measurements/detailed_groups_stage_1/`. Persons and true counts are in
`confidential/detailed_groups/`.

A run of households by detailed group has its measurements in
`measurements/detailed_households/<t3|t4>/<pass>/<region type>/<level>/`, and below `spine/` the
totals of the finished run that chose their tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..runs.directory import RunDirectory
from ..runs.files import read_record, write_text
from .workload.regions import REGION_TYPES
from .workload.tabulations import TABULATIONS

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
