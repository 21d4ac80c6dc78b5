"""How the files of a declared census are written, table by table, as its declaration says."""

from __future__ import annotations

from collections.abc import Mapping

from ..runs.names import refuse_unknown
from ..tables.formats import TextFormat
from .attribute_declarations import OTHER, FilesDeclaration
from .declarations import CensusDeclaration
from .recodes import CodeSet


def declared_formats(declared: CensusDeclaration) -> dict[str, TextFormat | None]:
    """How the files of every table are written that a declaration reads, the areas first; None in
    the layout of the Census Edited File, which `tables.layouts` has.

    Raises ValueError for a table that it does not read.
    """
    tables = [declared.geography.table]
    for universe in declared.universes.values():
        tables += [universe.table, *(step.table for step in universe.steps)]
        tables += [occupant.table for occupant in universe.occupants.values()]
    files = declared.files or {}
    kind = f"table, nor {OTHER!r} for all that are not named"
    refuse_unknown("files names", files, (*dict.fromkeys(tables), OTHER), kind)
    if OTHER in files and files[OTHER].columns is not None:
        raise ValueError(
            f"files.{OTHER} places columns, which belong to one table; give every table of fixed "
            "width a section of its own"
        )
    read = _columns_read(declared)
    for name, entry in files.items():
        for key in ("digits", "cells"):
            if lost := [column for column in getattr(entry, key) if column not in read]:
                raise ValueError(
                    f"files.{name} has {key} of {lost[0]!r}, a column that the census does not "
                    "read; correct its name, or remove it"
                )
    numbers = _number_columns(declared)
    is_free = declared.has_free_layout
    return {t: _format_of(files, t, numbers) if is_free else None for t in tables}


def format_of_others(declared: CensusDeclaration) -> TextFormat:
    """How files are written that are no tables of the declaration, such as lists of areas."""
    return _format_of(declared.files or {}, OTHER, frozenset())


def _format_of(
    files: Mapping[str, FilesDeclaration], table: str, numbers: frozenset[str]
) -> TextFormat:
    declared = files.get(table, files.get(OTHER, FilesDeclaration()))
    missing = CodeSet.of(declared.missing or ())
    return TextFormat(
        declared.separator,
        declared.decimal,
        declared.encoding,
        missing.holds if declared.missing else None,
        missing.texts,
        numbers,
        declared.digits,
        declared.cells,
        f"census.files.{OTHER if table not in files and OTHER in files else table}",
        places := declared.columns or {},
        declared.line_length or max((end for _, end in places.values()), default=None),
    )


def _columns_read(declared: CensusDeclaration) -> frozenset[str]:
    """Names of the columns of codes and identifiers that a declaration names."""
    geography = declared.geography
    names: list[str] = [*geography.geolevels, *geography.columns.values()]
    for attribute in declared.attributes.values():
        names += [column for rule in attribute.rules or () for column in rule.where]
        names += [column for entry in attribute.refused or () for column in entry.where]
        names += [attribute.column] if attribute.column else []
    for universe in declared.universes.values():
        names += [*universe.where, *universe.area_columns]
        for step in universe.steps:
            names += [step.column, step.key]
        for occupant in universe.occupants.values():
            names += [occupant.column, occupant.key, *occupant.where]
    return frozenset(name.rpartition(".")[2] if "." in name else name for name in names)


def _number_columns(declared: CensusDeclaration) -> frozenset[str]:
    """Names of columns that are read as numbers, with and without the table before a point."""
    names = [
        attribute.column
        for attribute in declared.attributes.values()
        if attribute.bins is not None or attribute.numbers is not None
    ]
    names += [universe.count for universe in declared.universes.values()]
    for entry in declared.geography.entities.values():
        names += [entry.latitude, entry.longitude]
    given = [name for name in names if name is not None]
    return frozenset([*given, *(name.partition(".")[2] for name in given if "." in name)])
