"""Mechanisms on data frames: the command line's runs, from tables in memory.

A frame is written to the run's `confidential/input/` and read from there, as a file is: the run is
checked, charged to the ledger, measured and released like any other, and the command line can
resume, report and compare it. Its steps are called in this process, one after the other; no Prefect
server is asked or started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from spineflow.runs import Run, open_run
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import Source
from spineflow.tasks.runs.stamps import write_parquet

Tables = Mapping[str, pd.DataFrame]
"""Tables of the input by the keys of `[input]`."""


class Privacy(TypedDict, total=False):
    """Keys of `[privacy]` that all products have; each product may have more."""

    dataset: str | None
    ledger: str | Path | None
    infinite: bool
    seed: int
    rho: str | Fraction
    epsilon: str | Fraction
    delta: str | Fraction


INPUT = "input"
"""Folder of the frames, in the confidential folder."""

INGEST = "ingest"
"""The stage that reads the input."""


def topdown(
    tables: Tables, settings: Source, run_dir: str | Path, **privacy: Unpack[Privacy]
) -> Run:
    """Release microdata and tables of a census by the TopDown Algorithm.

    Args:
        tables: Data frames by their names in `[input]`: `persons`, `units` and
            `geography` of the Census Edited File layout, or the tables of a declared census. Other
            tables are read from the files that the settings name.
        settings: A settings file, or its tables as nested mappings; `docs/settings.md` lists all.
            Losses are exact fractions in quotes. `[input]` needs no paths of the frames.
        run_dir: The run directory. Repeating the call continues or returns the existing run, and
            draws nothing twice; another table needs another directory.
        privacy: Keys of `[privacy]`, by default from the settings: `dataset`, the name under which
            the ledger adds up draws from these people, `ledger`, its path, and others, such as
            `seed` for input that may be disclosed.

    Returns:
        The run, once its release is out.

    Raises:
        SpineflowError: Settings or tables are refused, a cap is reached, or a check fails; with the
            sentence of the command line.

    Example: `spineflow.topdown({"residents": frame, "areas": areas}, settings, "release-1",
    dataset="town", ledger="ledger.db")`.
    """
    return _run("topdown", tables, settings, run_dir, privacy)


def detailed_groups(
    tables: Tables, settings: Source, run_dir: str | Path, **privacy: Unpack[Privacy]
) -> Run:
    """Release adaptive tables of detailed race and ethnicity groups, by SafeTab-P.

    `tables` has `persons`, `units` and `geography` of the Census Edited File layout; the settings
    name the folder of parameters. Otherwise as `topdown`.
    """
    return _run("detailed-groups", tables, settings, run_dir, privacy)


def detailed_households(
    tables: Tables, settings: Source, run_dir: str | Path, **privacy: Unpack[Privacy]
) -> Run:
    """Release households by type and tenure for detailed groups of the householder, by SafeTab-H.

    `tables` has `persons`, `units` and `geography` of the Census Edited File layout; the settings
    name the folder of parameters, and as `groups` the directory of a finished run of detailed
    groups. Otherwise as `topdown`.
    """
    return _run("detailed-households", tables, settings, run_dir, privacy)


def group_sizes(
    tables: Tables, settings: Source, run_dir: str | Path, **privacy: Unpack[Privacy]
) -> Run:
    """Release consistent numbers of groups of each size in every region.

    `tables` has `sizes` (region, size, count) or `records`, and `regions` (level, region, parent);
    or the census tables. Otherwise as `topdown`.
    """
    return _run("group-sizes", tables, settings, run_dir, privacy)


def supplemental_dhc(
    tables: Tables, settings: Source, run_dir: str | Path, **privacy: Unpack[Privacy]
) -> Run:
    """Release people joined with their households: average sizes, relationships, with intervals.

    `tables` has `persons`, `units` and `geography` of the Census Edited File layout. Otherwise as
    `topdown`.
    """
    return _run("supplemental-dhc", tables, settings, run_dir, privacy)


def trips(tables: Tables, settings: Source, run_dir: str | Path, **privacy: Unpack[Privacy]) -> Run:
    """Release a table of origins and destinations, or any table that forms a tree, by InfTDA.

    `tables` has `trips` and `areas`, or `table`; the settings name their columns. Otherwise as
    `topdown`.
    """
    return _run("trips", tables, settings, run_dir, privacy)


def _run(name: str, tables: Tables, settings: Source, run_dir: str | Path, privacy: Privacy) -> Run:
    from spineflow.flows.running import is_done, prepare, run_stages_in_process  # 1.3 s

    arrow = {key: _to_arrow(key, frame) for key, frame in tables.items()}
    run = RunDirectory(Path(run_dir).resolve())
    files = {key: run.confidential / INPUT / f"{key}.parquet" for key in arrow}
    given: dict[str, Any] = {f"input.{key}": str(file) for key, file in files.items()}
    given |= {f"privacy.{key}": value for key, value in privacy.items() if value is not None}
    if (ledger := privacy.get("ledger")) is not None:
        given["privacy.ledger"] = str(Path(ledger).resolve())
    asked = product(name)
    loaded = asked.load(
        settings, [f"{key}={json.dumps(value, default=str)}" for key, value in given.items()]
    )
    prepare(loaded, run.root)
    with run.locked():
        for key, table in arrow.items():
            _write_input_table(run, files[key], table)
    if not is_done(asked, run, loaded):
        try:
            run_stages_in_process(asked, run, loaded)
        except InputRefused as error:
            key, _, told = str(error).partition(".parquet: ")
            if type(error) is not InputRefused or key not in arrow:
                raise
            # The caller has given no file.
            raise InputRefused(f"the table {key}: {told}") from None
    return open_run(run.root)


def _to_arrow(name: str, frame: pd.DataFrame) -> pa.Table:
    """A frame as an Arrow table; raises InputRefused, without a value, for unsupported types."""
    if not name.isidentifier():
        raise InputRefused(f"{name!r} is no name of a table; name the tables as [input] does.")
    if not isinstance(frame, pd.DataFrame):
        raise InputRefused(
            f"{name} is no data frame; give a pandas.DataFrame, or name its file in [input]."
        )
    columns = {}
    for column in frame.columns:
        try:
            columns[str(column)] = pa.Array.from_pandas(frame[column])
        except (pa.ArrowException, TypeError, ValueError):
            # Arrow's own words quote the value.
            raise InputRefused(
                f"{name}: the column {column} has values of more than one type; make it numbers "
                "or text alone."
            ) from None
    return pa.table(columns)


def _write_input_table(run: RunDirectory, file: Path, table: pa.Table) -> None:
    """Write a table where the run reads it, unless it exists; the caller has locked the run.

    Raises InputRefused for another table than the one that the run has read.
    """
    has_read = INGEST in run.read_manifest()["stages"]
    if file.exists():
        if pq.read_table(file).equals(table):
            return
        if has_read:
            raise InputRefused(
                f"{file.stem} is not the table that the run in {run.root} has read; give that one, "
                "or name another run_dir."
            )
    elif has_read:
        return  # The confidential folder was removed on purpose.
    write_parquet(file, table)


def people_in_households(
    release: str | Path, levels: Sequence[str] = ("US", "State")
) -> pd.DataFrame:
    """PH1 to PH8 of one population: people joined with their households, as plain sums.

    Args:
        release: A folder with `population_persons.parquet` and `population_units.parquet`.
        levels: US, State, County, Tract, Block_Group or Block.

    Returns:
        The rows of `supplemental_dhc`, whose `estimate` is the sum or the average; `noisy`, `low`
        and `high` are missing, and so are averages over no households. Nothing is spent.

    Raises:
        SpineflowError: The files are not there, are of another census, or do not fit.

    Example: `spineflow.people_in_households("run/release", ["County"])`.
    """
    from spineflow.tasks.supplemental_dhc.estimation import rows_of_population  # 0.6 s

    return rows_of_population(Path(release), levels)
