"""How the tables of a run are read: as its census says, in one piece or in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...census.census import Census
from ...census.code_notes import CodeTally
from ...census.declared_input import DeclaredInput, DeclaredTables
from ...census.inputs import CefTables, IngestResult, table_files
from ...census.members import completed_files, completed_units
from ...tables.findings import Finding, UnreadableInput
from ..settings import TopdownSettings

IngestedInput = IngestResult | DeclaredInput
"""What an ingest needs of its input."""

Ahead = Callable[[IngestedInput], object]
"""What is called with the result of a check while that is judged; it must leave nothing of it."""


def run_census(settings: TopdownSettings) -> Census:
    """The census of a run, with the structural zeros that its settings add."""
    census = settings.compiled_census
    universes = {
        name: replace(universe, zeros=settings.zeros_of(name))
        for name, universe in census.universes.items()
    }
    return replace(census, universes=universes)


def reading_of(
    settings: TopdownSettings, ahead: Ahead | None = None, codes: CodeTally | None = None
) -> CefTables | DeclaredTables:
    """The tables of a run; messages show their file names. `ahead` is called with the result of a
    check while that is judged; `codes` get what columns with declared codes hold."""
    return _READINGS[settings.compiled_census.layout](settings, ahead, codes)


def _of_cef(settings: TopdownSettings, ahead: Ahead | None, _codes: CodeTally | None) -> CefTables:
    tables, universes = settings.input.paths(), settings.run.universes
    paths = {name: tables[name] for name in ("geography", "units", "persons")}
    person_schema, unit_schema = (
        settings.schema_of(name) if name in universes else None for name in ("persons", "units")
    )
    files = table_files(paths, settings.input.file_names())
    return CefTables(files, person_schema, unit_schema, ahead)


def _of_declared(
    settings: TopdownSettings, ahead: Ahead | None, codes: CodeTally | None
) -> DeclaredTables:
    schemas = {name: settings.schema_of(name) for name in settings.run.universes}
    tables = DeclaredTables.of(run_census(settings), schemas, own_tables(settings))
    return replace(tables, ahead=ahead, codes=codes)


def completed(
    reading: CefTables | DeclaredTables, folder: Path
) -> tuple[CefTables | DeclaredTables, tuple[Finding, ...]]:
    """The tables with the columns that persons tell of their units, and what contradicts them.

    Completed tables are written to the confidential `folder`; see `census.members`. Without such
    tables, or persons among the input, nothing is read.
    """
    findings = list[Finding]()
    for table, members in reading.census.members.items():
        if members.table not in reading.files:
            continue
        units, persons = reading.files[table], reading.files[members.table]
        try:
            target = folder / _completed(table)
            findings += completed_units(units, persons, members.key, target).findings
        except UnreadableInput as error:
            findings.append(error.finding)
    return as_completed(reading, folder), tuple(findings)


def as_completed(reading: CefTables | DeclaredTables, folder: Path) -> CefTables | DeclaredTables:
    """The tables, those in place of the settings' that `completed` has written to a folder."""
    made = {
        table: completed_files(files, folder / _completed(table))
        for table, files in reading.files.items()
        if table in reading.census.members
    }
    return replace(reading, files={**reading.files, **made})


def _completed(table: str) -> str:
    return f"{table}_with_members.parquet"


Reader = Callable[[TopdownSettings, Ahead | None, CodeTally | None], CefTables | DeclaredTables]

_READINGS: Mapping[str, Reader] = {
    "cef": _of_cef,
    "declared": _of_declared,
}
"""By layout of a census, the tables of a run."""


def record_tables(settings: TopdownSettings) -> Sequence[str]:
    """The tables whose records are counted, and may be counted in parts."""
    files = reading_of(settings).records.values()
    return tuple(dict.fromkeys(own[0].table for own in files))


def own_tables(settings: TopdownSettings) -> dict[str, str]:
    """Paths of the tables of a declared census, without the earlier releases it is held to."""
    releases = settings.compiled_census.earlier_releases
    return {name: path for name, path in settings.input.paths().items() if name not in releases}
