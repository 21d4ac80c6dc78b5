"""Tables that are kept as a whole: columns of all rows, and lists of areas (level, area, parent).

The levels of a list form a chain: the coarsest has no parents, every other level's parents are
areas of the level above. Their order in the file does not matter, nor do the names of the levels.
Areas are public, so that messages may name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ...validation.rules import AREA_RULES, Rule
from ..runs.errors import InputRefused
from .columns import CodedColumn, GrowingColumn, KeyColumn
from .findings import refuse_unreadable
from .formats import TextFormat
from .layouts import TableLayout
from .readers import Selection, read_batches, read_partitions
from .sources import InputFile
from .value_tallies import ValueTally


@dataclass(frozen=True, eq=False)
class WholeTable:
    """All rows of a table.

    columns : those that every file has, by name. keys : identifiers, where there are any.
    n_rows : rows `(n_files,)` of each file. lacking : by further column, the first file that lacks
        it, or has it first, by position.
    """

    columns: Mapping[str, CodedColumn]
    keys: KeyColumn
    n_rows: np.ndarray
    lacking: Mapping[str, int]


def read_whole(files: Sequence[InputFile], selection: Selection, key: str = "") -> WholeTable:
    """Read all rows of a table; `key` is the column of its identifiers.

    Raises UnreadableInput.
    """
    keys, n_rows, lacking = KeyColumn(), np.zeros(len(files), np.int64), dict[str, int]()
    growing: dict[str, GrowingColumn] = {}
    for file, batch in read_partitions(files, selection):
        names = [name for name in batch if name != key]
        growing = growing or {name: GrowingColumn() for name in names}
        for name in growing.keys() ^ {*names}:
            lacking.setdefault(name, file)
        for name in growing.keys() & {*names}:
            field = files[file].columns.field(name)
            growing[name].append(CodedColumn.from_arrow(batch[name], field))
        if key:
            keys.add(batch[key])
        n_rows[file] += len(next(iter(batch.values())))
    columns = {name: own.column() for name, own in growing.items() if name not in lacking}
    return WholeTable(columns, keys, n_rows, lacking)


def read_area_rows(file: InputFile, area: str) -> pd.DataFrame:
    """The columns level, `area` and parent as texts without surrounding blanks, "" where blank.

    `area` is "area" or "region", and the column may have either name. Raises UnreadableInput.
    """
    file = file.with_columns(dict.fromkeys(("level", "area", "region", "parent"), "text"))
    table = read_whole([file], Selection(("level", "parent"), with_others=True)).columns
    own = next((name for name in (area, "area", "region") if name in table), area)
    Selection((own,)).choose(file, tuple(table))
    columns = {"level": "level", area: own, "parent": "parent"}
    return pd.DataFrame({to: table[name].texts() for to, name in columns.items()}).fillna("")


Level = tuple[str, pd.DataFrame]
"""A level's name, and its areas with their parents."""


def area_levels(rows: pd.DataFrame, table: str, evidence: ValueTally) -> list[Level] | None:
    """Levels of the rows level, area (or region), parent of a table, coarsest first, each with its
    areas; None if a rule is broken.
    """
    *rules, chain, depths = AREA_RULES.of("areas", table=table, word=rows.columns[1])
    rows = distinct_areas(rows, rules[:3], evidence)
    order = _chain(rows)
    evidence.count(chain, order is None)
    levels = [(level, rows[rows["level"] == level]) for level in order or ()]
    check_links(levels, (rules[3], depths), evidence)
    return levels if evidence.are_met((*rules, chain, depths)) else None


def distinct_areas(rows: pd.DataFrame, rules: Sequence[Rule], evidence: ValueTally) -> pd.DataFrame:
    """The distinct rows of areas with one parent; the others are counted."""
    named, once, one_parent = rules
    evidence.count(named, (rows[rows.columns[:2]] == "").any(axis=1).sum())
    for rule, columns, what in (
        (once, rows.columns, "appears again"),
        (one_parent, rows.columns[:2], "has two"),
    ):
        repeated = rows.duplicated(list(columns))
        evidence.count_areas(rule, rows, repeated, what)
        rows = rows[~repeated]
    return rows


def check_links(levels: Sequence[Level], rules: tuple[Rule, Rule], evidence: ValueTally) -> None:
    """Count parents that are not in the level above, and areas without children."""
    known, depths = rules
    evidence.count(known, 0)
    evidence.count(depths, 0)
    for (upper, above), (lower, below) in zip(levels, levels[1:], strict=False):
        area = above[above.columns[1]]
        lost, ends = ~below["parent"].isin(set(area)), ~area.isin(set(below["parent"]))
        evidence.count_areas(known, below, lost, f"has a parent that is not in {upper}")
        evidence.count_areas(depths, above, ends, f"has none of {lower} below it")


def _chain(rows: pd.DataFrame) -> list[str] | None:
    """The levels in order, coarsest first; None if they form no chain.

    The level above another is that which holds most of its parents, the nearest in the file if
    several do.
    """
    areas = {level: set(own[rows.columns[1]]) for level, own in rows.groupby("level", sort=False)}
    names = list(areas)
    above: dict[str, str | None] = {}
    for position, level in enumerate(names):
        parents = rows.loc[(rows["level"] == level) & (rows["parent"] != ""), "parent"]
        held = {other: parents.isin(own).sum() for other, own in areas.items() if other != level}
        if len(parents) and not held:
            return None
        nearest = sorted(held, key=lambda other: abs(names.index(other) - position))
        above[level] = max(nearest, key=held.__getitem__) if len(parents) else None
    order: list[str] = []
    below = [level for level in names if above[level] is None]
    while len(below) == 1:
        order += below
        below = [level for level in names if above[level] == order[-1]]
    return order if len(order) == len(names) else None


def read_texts(
    path: Path, names: Sequence[str], text_format: TextFormat | None = None
) -> pd.DataFrame:
    """All columns of a file as texts; `names` are some that it may have.

    Raises InputRefused for a file that cannot be read.
    """
    if not path.is_file():
        raise InputRefused(f"{path} is no file; name one in CSV or Parquet.")
    layout = TableLayout.expected("areas", dict.fromkeys(names, "text"))
    file = InputFile("areas", str(path), str(path), layout, text_format)
    with refuse_unreadable():
        batches = read_batches(file, Selection((), with_others=True))
        return pd.concat([pa.table(dict(batch)).to_pandas().astype(str) for batch in batches])
