"""The declared layout of a universe's microdata, and rows of a file decoded by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import UnusableRunFile, number_texts
from .declaration import TOTAL, Cells, Declaration, PublicAreas
from .spine import RunSpine, SpineLevel

SEPARATOR = "\x1f"
"""Between codes that are joined to one text."""


@dataclass(frozen=True, eq=False)
class Description:
    """Columns that another universe, which is matched with the records, says more of them by.

    row : (n_cells,) the answer of `query`, of the other universe, that each cell's records are
    matched in, -1 for none. columns : by name, a query of the other universe, and the code of each
    of its answers. otherwise : the codes of records that are matched with none.
    """

    universe: str
    query: str
    row: np.ndarray
    columns: Mapping[str, tuple[str, Sequence[str]]]
    otherwise: Mapping[str, str]


@dataclass(frozen=True)
class LayoutColumn:
    """A column of microdata, and its required content; one of the five is given.

    constant : the same text in every row.
    digits : characters of the block's geocode, end exclusive.
    geolevel : the code of the area's geounit of a declared geolevel.
    is_number : the number of the row, from 0.
    attribute : the code of its level, with one in `codes` for each; where two levels share a code,
        further columns distinguish them.
    """

    name: str
    constant: str | None = None
    digits: tuple[int, int] | None = None
    geolevel: str | None = None
    is_number: bool = False
    attribute: str | None = None
    codes: tuple[str, ...] = ()

    @property
    def is_of_area(self) -> bool:
        """Whether it says where a row is."""
        return self.digits is not None or self.geolevel is not None


@dataclass(frozen=True)
class Layout:
    """The columns of a universe's microdata in their order.

    further : the values that the rows of further records, such as facilities, have in some columns.
    described : the columns after the others that another universe fills.
    count : the last column, the number of records of a row; None for one.
    has_quotes : whether texts may be quoted.
    """

    columns: tuple[LayoutColumn, ...]
    further: Mapping[str, str] = field(default_factory=dict)
    described: Description | None = None
    count: str | None = None
    has_quotes: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        described = () if self.described is None else self.described.columns
        counted = () if self.count is None else (self.count,)
        return [*(column.name for column in self.columns), *described, *counted]

    def area_level(self, areas: PublicAreas, spine: RunSpine) -> SpineLevel:
        """The areas of a spine, each by the codes that its rows have of it, joined.

        Raises UnusableRunFile for areas of which two have the same codes.
        """
        codes = []
        for column in self.columns:
            if column.geolevel is not None:
                codes.append(areas.codes(column.geolevel).cast(pa.string()))
            elif column.digits is not None:
                codes.append(pc.utf8_slice_codeunits(spine.area_geocode, *column.digits))
        joined = pc.binary_join_element_wise(*codes, SEPARATOR)
        if pc.count_distinct(joined).as_py() < len(joined):
            raise UnusableRunFile("the columns of the microdata do not identify all areas")
        none = np.zeros(len(joined), dtype=np.int64)
        return SpineLevel("area", joined, none, (), none, none > 0, none)

    def areas(self, rows: Rows, level: SpineLevel) -> np.ndarray:
        """Number of each row's area, `(n_rows,)`, -1 for unknown codes; rows of one area are mostly
        consecutive, and are looked up once."""
        columns = [rows.texts[column.name] for column in self.columns if column.is_of_area]
        is_first = np.arange(rows.n) == 0
        for _, number in columns:
            is_first[1:] |= number[1:] != number[:-1]
        first = np.flatnonzero(is_first)
        codes = [
            pa.array(distinct, pa.string()).take(pa.array(n[first])) for distinct, n in columns
        ]
        area = level.positions(pc.binary_join_element_wise(*codes, SEPARATOR))
        return np.repeat(area, np.diff(first, append=rows.n))


def layout_of(declaration: Declaration, universe: str, areas: PublicAreas) -> Layout:
    """The layout of a universe's microdata: the declared one, or labels of areas and levels."""
    own, cells = declaration.universe(universe), declaration.cells(universe)
    geolevels = iter(() if declaration.has_digits else areas.code_columns)
    declared = own.get("microdata")
    if declared is None:
        places = tuple(LayoutColumn(name, geolevel=name) for name in geolevels)
        labels = tuple(
            LayoutColumn(name, attribute=name, codes=tuple(of)) for name, of in cells.labels.items()
        )
        return Layout((*places, *labels), count=own.get("count"), has_quotes=True)
    columns = []
    for column in _present(declared["columns"], cells, own["attributes"]):
        digits = column.get("digits")
        geolevel = None if digits is None else next(geolevels, None)
        attribute: str | None = None
        codes: tuple[str, ...] = ()
        if "attribute" in column:
            grouping = cells.grouping(column["attribute"])
            of_group = _codes(column, len(grouping.labels))
            attribute, codes = grouping.attribute, tuple(of_group[g] for g in grouping.groups)
        columns.append(
            LayoutColumn(
                column["name"],
                column.get("constant"),
                None if digits is None or geolevel is not None else tuple(digits),
                geolevel,
                column.get("number", False),
                attribute,
                codes,
            )
        )
    described = declared.get("described_by")
    return Layout(
        tuple(columns),
        declared.get("further", {}).get("values", {}),
        None if described is None else _description(declaration, universe, described),
    )


def _present(columns: Sequence[Mapping], cells: Cells, attributes: Sequence[str]) -> list[Mapping]:
    """The declared columns that a schema fills, followed by those of additional attributes in the
    settings and of those without a column."""
    of_attribute = {own.get("attribute"): own for own in columns}
    chosen = [name for name in cells.labels if name not in attributes]
    first = [
        own
        for own in columns
        if "attribute" not in own
        or (own["attribute"] not in chosen and cells.tells(own["attribute"]))
    ]
    last = [
        of_attribute.get(name, {"name": name.upper(), "attribute": name, "first": 0})
        for name in cells.labels
        if name in chosen or name not in of_attribute
    ]
    return first + last


def _codes(column: Mapping, n: int) -> list[str]:
    """The code of each level that a declared column has."""
    if "codes" in column:
        return list(column["codes"])
    return [str(column["first"] + i).zfill(column.get("width", 1)) for i in range(n)]


def _description(declaration: Declaration, universe: str, declared: Mapping) -> Description:
    """The columns filled by another universe, which is constrained to this one."""
    other = declared["universe"]
    later, cells = declaration.cells(other), declaration.cells(universe)
    held = next(
        own
        for own in declaration.universe(other)["held_to"]
        if "release" not in own and own["universe"] == universe
    )
    query, where = held.get("query", TOTAL), held.get("where", {})
    row = later.counted_of(cells, query, held.get("of", where), {})
    columns = {
        own["name"]: (own["attribute"], _codes(own, later.n_rows(own["attribute"])))
        for own in declared["columns"]
    }
    return Description(other, query, row, columns, declared["otherwise"])


@dataclass(frozen=True)
class Rows:
    """Rows of a batch: for each column of texts the distinct ones and the number of every row's.

    numbers : by column, numbers of rows.
    count : how many records each row represents.
    """

    n: int
    texts: Mapping[str, tuple[Sequence[str], np.ndarray]]
    numbers: Mapping[str, np.ndarray]
    count: np.ndarray

    @classmethod
    def decoded(cls, batch: pa.RecordBatch, layout: Layout) -> Rows:
        """The rows of a batch; raises UnusableRunFile for a missing code or count."""
        texts, numbers = {}, {}
        for name in [column.name for column in layout.columns] + [layout.count or ""]:
            if name and batch.column(name).null_count:
                raise UnusableRunFile(f"a {name} is missing")
        for column in layout.columns:
            values = batch.column(column.name)
            if column.is_number:
                numbers[column.name] = pc.cast(values, pa.int64()).to_numpy()
            else:
                texts[column.name] = number_texts(values)
        count = np.ones(batch.num_rows, dtype=np.int64)
        if layout.count is not None:
            count = pc.cast(batch.column(layout.count), pa.int64()).to_numpy()
        return cls(batch.num_rows, texts, numbers, count)

    def has(self, name: str, text: str) -> np.ndarray:
        """Which rows have this text in a column."""
        distinct, index = self.texts[name]
        return np.array([value == text for value in distinct], dtype=bool)[index]

    def levels(self, columns: Sequence[LayoutColumn]) -> np.ndarray:
        """Level whose codes the columns of an attribute have together in each row, -1 for none."""
        found = [self.texts[column.name] for column in columns]
        level_of = np.full([len(distinct) for distinct, _ in found], -1)
        for level, codes in enumerate(zip(*(column.codes for column in columns), strict=True)):
            pairs = list(zip(codes, found, strict=True))
            if all(code in distinct for code, (distinct, _) in pairs):
                level_of[tuple(distinct.index(code) for code, (distinct, _) in pairs)] = level
        return level_of[tuple(index for _, index in found)]

    def cells(
        self, layout: Layout, cells: Cells, failures: Failures
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cell of each row, and mask of the valid rows of the universe itself.

        Rows that are neither of the universe nor further records are failures, and count as
        further; so are other constants than those of the layout. Raises UnusableRunFile for a
        layout without a column for an attribute.
        """
        is_further = np.full(self.n, bool(layout.further))
        for name, text in layout.further.items():
            is_further &= self.has(name, text)
        is_right = np.ones(self.n, dtype=bool)
        for column in layout.columns:
            if column.constant is None:
                continue
            is_same = self.has(column.name, column.constant)
            if column.name in layout.further:
                is_right &= is_same
            else:
                failures.add_each(~is_same, f"a {column.name} is not {column.constant}")
        cell = np.zeros(self.n, dtype=np.int64)
        for attribute, size in zip(cells.labels, cells.shape, strict=True):
            columns = [column for column in layout.columns if column.attribute == attribute]
            if len(set(zip(*(column.codes for column in columns), strict=True))) != size:
                raise UnusableRunFile(
                    f"{cells.universe} has no column for {attribute} of its schema"
                )
            level = self.levels(columns)
            is_right &= level >= 0
            cell = cell * size + level
        failures.add_each(
            ~is_right & ~is_further,
            f"a row of {cells.universe} has a combination of codes that its columns cannot have",
        )
        return cell, is_right & ~is_further
