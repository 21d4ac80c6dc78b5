"""Declared content of a run's settings and its census: cells, queries, conditions, budgets.

They are read from `settings.toml` and the declaration of the census in it or named by it, and
computed by definition: a row of a query is a choice of a level, or of a group of levels, of each
attribute that the query names, and it counts the cells that agree with that choice.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ..plan import not_private_reason, rho_of
from ..run_files import UnusableRunFile, positions, read_settings, read_table, to_text
from .spine import RunSpine

TOTAL, DETAILED = "total", "detailed"
PRODUCT_SIGN = " * "
CENSUSES = Path(__file__).parents[2] / "tasks" / "census" / "presets"
"""Folder of the censuses that settings name."""
GEOGRAPHY, PUBLIC = Path("spine/geography.parquet"), Path("spine/invariants.parquet")
FACILITIES = tuple(f"facilities_{n}" for n in range(1, 8))
BLOCKS = "blocks"
"""Rules of a geography whose areas are blocks of 2020, and whose geocodes are digits."""

Conditions = Mapping[str, Any]
"""Levels that attributes or coarsenings may take: one, or a list of levels, ranges, patterns."""


@dataclass(frozen=True)
class Grouping:
    """Merged levels of an attribute: labels of the groups, and the group of each level."""

    attribute: str
    labels: tuple[str, ...]
    groups: tuple[int, ...]

    def chosen(self, conditions: Any) -> np.ndarray:
        """Mask of the attribute's levels that conditions on the groups allow."""
        wanted = {i for one in wrap_in_list(conditions) for i in positions_of(one, self.labels)}
        return np.isin(self.groups, sorted(wanted))


@dataclass(frozen=True)
class Cells:
    """All ways of choosing a level of each attribute, numbered so that the last runs fastest.

    labels : labels of the levels of each attribute, in the order in which cells are numbered.
    coarsenings : by name; those of other attributes are ignored.

    >>> Cells("persons", {"sex": ("f", "m"), "age": ("0", "1", "2")}).levels("age").tolist()
    [0, 1, 2, 0, 1, 2]
    """

    universe: str
    labels: Mapping[str, Sequence[str]]
    coarsenings: Mapping[str, Grouping] = field(default_factory=dict)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of each attribute."""
        return tuple(map(len, self.labels.values()))

    @property
    def n(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def tells(self, name: str) -> bool:
        """Whether there is an attribute of this name, or a coarsening of one."""
        coarse = self.coarsenings.get(name)
        return name in self.labels or (coarse is not None and coarse.attribute in self.labels)

    def grouping(self, name: str) -> Grouping:
        """The coarsening of this name, or the single levels of the attribute of this name.

        Raises ValueError if there is neither.
        """
        if name in self.labels:
            return Grouping(name, tuple(self.labels[name]), tuple(range(len(self.labels[name]))))
        if not self.tells(name):
            raise ValueError(f"{name!r} is no attribute of {self.universe} nor a coarsening")
        return self.coarsenings[name]

    def levels(self, attribute: str) -> np.ndarray:
        """Level of an attribute in every cell, `(n,)`."""
        at = list(self.labels).index(attribute)
        return np.arange(self.n) // math.prod(self.shape[at + 1 :]) % self.shape[at]

    def where(self, conditions: Conditions) -> np.ndarray:
        """Mask `(n,)` of the cells that meet all conditions; raises ValueError as `grouping`."""
        allowed = {name: np.ones(len(own), dtype=bool) for name, own in self.labels.items()}
        for name, levels in conditions.items():
            grouping = self.grouping(name)
            allowed[grouping.attribute] &= grouping.chosen(levels)
        mask = np.ones(1, dtype=bool)
        for own in allowed.values():
            mask = (mask[:, None] & own).ravel()
        return mask

    def parts(self, query: str) -> list[tuple[str, Grouping]]:
        """Factors of a query, in the order of the attributes; raises ValueError for a name that is
        neither an attribute nor a coarsening, and for two of one attribute.
        """
        names = [] if query == TOTAL else list(self.labels)
        if query not in (TOTAL, DETAILED):
            names = spell_query(query).split(PRODUCT_SIGN)
        found = {(one := self.grouping(name)).attribute: (name, one) for name in names}
        if len(found) < len(names):
            raise ValueError(f"the query {query!r} names an attribute twice")
        return [found[attribute] for attribute in self.labels if attribute in found]

    def n_rows(self, query: str) -> int:
        """Number of a query's answers."""
        return math.prod(len(own.labels) for _, own in self.parts(query))

    def rows(self, query: str) -> np.ndarray:
        """Answer that counts each cell, `(n,)`; answers are numbered as cells are."""
        if query not in self._rows:
            row = np.zeros(self.n, dtype=np.int64)
            for _, own in self.parts(query):
                row = row * len(own.labels) + np.array(own.groups)[self.levels(own.attribute)]
            self._rows[query] = row
        return self._rows[query]

    @cached_property
    def _rows(self) -> dict[str, np.ndarray]:
        """The rows of the requested queries."""
        return {}

    def counted(self, query: str, inside: np.ndarray | None = None) -> sparse.csr_array:
        """0/1 matrix `(n, n_rows)` of the cells that each answer counts; those `inside` alone."""
        row = self.rows(query)
        return incidence(row if inside is None else np.where(inside, row, -1), self.n_rows(query))

    def counted_of(
        self, other: Cells, query: str, of: Conditions, called: Mapping[str, str]
    ) -> np.ndarray:
        """Answer `(other.n,)` to a query of these cells that counts each cell of another universe
        which meets `of`, -1 for none; levels are matched by their labels.

        called : other names that the other universe has for parts of the query.
        """
        row, inside = np.zeros(other.n, dtype=np.int64), other.where(of)
        for name, own in self.parts(query):
            theirs = other.grouping(called.get(name, name))
            place = {label: number for number, label in enumerate(own.labels)}
            number = np.array([place.get(label, -1) for label in theirs.labels])
            group = number[np.array(theirs.groups)[other.levels(theirs.attribute)]]
            inside &= group >= 0
            row = row * len(own.labels) + group
        return np.where(inside, row, -1)


@dataclass(frozen=True)
class Budget:
    """The budget of a universe.

    total : epsilon where the noise `is_pure`, discrete Laplace, or else rho of the discrete
    Gaussian; None for a run without noise. levels : from the root down. queries : by level, their
    shares; no share of 0.
    """

    total: Fraction | None
    is_pure: bool
    delta: Fraction | None
    levels: tuple[str, ...]
    queries: Mapping[str, Mapping[str, Fraction]]
    on_demand: bool

    @property
    def measurements(self) -> str:
        """Folder of a level's measurements."""
        return "on_demand" if self.on_demand else "dpqueries"


@dataclass(frozen=True)
class Declaration:
    """The settings of a run and the census that they declare or name, as files have them."""

    root: Path
    settings: Mapping[str, Any]
    census: Mapping[str, Any]

    @classmethod
    def read(cls, root: Path) -> Declaration:
        """Those of a run; raises UnusableRunFile for files that cannot be read."""
        settings = read_settings(root)
        census = settings.get("census", "cef_2020")
        if isinstance(census, str):
            try:
                census = tomllib.loads((CENSUSES / f"{census}.toml").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                raise UnusableRunFile("the settings name an unknown census") from None
        return cls(root, settings, census)

    @cached_property
    def universes(self) -> tuple[str, ...]:
        """Those that are run."""
        return tuple(self.settings["run"]["universes"])

    @property
    def is_private(self) -> bool:
        """Whether files must be without the stamp of a run that is not."""
        is_stamped = self.settings.get("measured", {}).get("not_private", False)
        return not is_stamped and not_private_reason(self.settings) is None

    @property
    def has_digits(self) -> bool:
        """Whether geocodes are those of the United States, digit by digit."""
        return self.census["geography"].get("rules") == BLOCKS

    @property
    def geolevels(self) -> tuple[str, ...]:
        """The declared ones, root first."""
        return tuple(self.census["geography"]["geolevels"])

    @property
    def areas_alone(self) -> bool:
        """Whether every area is estimated separately, from its own measurements."""
        return self.settings["run"]["estimator"] == "block_by_block"

    def universe(self, name: str) -> Mapping[str, Any]:
        """Declaration of a universe in the census."""
        return self.census["universes"][name]

    def declared(self, universe: str, key: str) -> list[Mapping[str, Any]]:
        """Declarations of one kind in a universe, such as its bounds."""
        return list(self.universe(universe).get(key, ()))

    def accompanied(self, universe: str) -> list[Mapping[str, Any]]:
        """Agreements of a universe's records with its other ones that the run follows."""
        is_coherent = self.settings["run"]["coherent"]
        declared = self.declared(universe, "agree") if is_coherent else []
        return [own for own in declared if own.get("kind") == "accompanied"]

    def cells(self, universe: str) -> Cells:
        """The cells of a universe, by the attributes that the settings choose."""
        return self._cells[universe]

    def all_cells(self, universe: str) -> Cells:
        """The cells of a universe by all its attributes, those too that settings may choose."""
        own = self.universe(universe)
        return self._cells_of(universe, [*own["attributes"], *own.get("further_attributes", ())])

    def _cells_of(self, universe: str, names: Sequence[str]) -> Cells:
        labels = {name: labels_of(self.census["attributes"][name]) for name in names}
        return Cells(universe, labels, self._groupings)

    @cached_property
    def _cells(self) -> dict[str, Cells]:
        chosen = self.settings.get("workload", {})
        return {
            name: self._cells_of(name, chosen.get(name, {}).get("attributes") or own["attributes"])
            for name, own in self.census["universes"].items()
        }

    @cached_property
    def _groupings(self) -> dict[str, Grouping]:
        found = {}
        for name, declared in self.census.get("coarsenings", {}).items():
            labels = labels_of(self.census["attributes"][declared["attribute"]])
            groups = groups_of(labels, declared["levels"])
            found[name] = Grouping(declared["attribute"], tuple(declared["levels"]), groups)
        return found

    def zeros(self, universe: str) -> dict[str, np.ndarray]:
        """By name, mask `(n_cells,)` of the cells that are zero by definition."""
        declared = list(self.universe(universe).get("structural_zeros", ()))
        declared = [{"name": f"zero_{n}"} | zero for n, zero in enumerate(declared, 1)]
        declared += self.settings.get("workload", {}).get(universe, {}).get("structural_zeros", ())
        return {zero["name"]: self.cells(universe).where(zero["where"]) for zero in declared}

    def budget(self, universe: str) -> Budget:
        """The budget of a universe."""
        own = self.settings["budget"][universe]
        is_pure = own.get("mechanism") == "discrete_laplace"
        levels = tuple(own["geolevels"])
        queries = {
            level: {spell_query(query): Fraction(share) for query, share in shares.items()}
            for level, shares in own["queries"].items()
            if level in levels[-1 if self.areas_alone else 0 :]
        }
        epsilon, delta, rho = (
            Fraction(own[key]) if key in own else None for key in ("epsilon", "delta", "rho")
        )
        total = epsilon if is_pure else rho
        if total is None and epsilon is not None and delta is not None:
            # The product rounds it down to 12 digits.
            rho = rho_of(epsilon, delta)
            quotient = Context(prec=12, rounding=ROUND_FLOOR).divide(
                Decimal(rho.numerator), Decimal(rho.denominator)
            )
            total = Fraction(quotient)
        return Budget(
            None if self.settings["privacy"]["infinite"] else total,
            is_pure,
            delta,
            levels,
            {
                level: {query: share for query, share in queries.get(level, {}).items() if share}
                for level in levels
            },
            self.settings.get("workload", {}).get(universe, {}).get("on_demand", False),
        )


class PublicAreas:
    """Public facts about the areas of a spine, in the order of their geocodes."""

    def __init__(self, declaration: Declaration, spine: RunSpine) -> None:
        self._root, self._declaration, self._spine = declaration.root, declaration, spine

    def _rows(self, place: Path) -> np.ndarray:
        """The row of a file that each area has; raises UnusableRunFile for an area without."""
        known = to_text(read_table(self._root / place, ["block_geocode"])["block_geocode"])
        found = positions(self._spine.area_geocode, known)
        if (found < 0).any():
            raise UnusableRunFile(f"{place.name} does not have all areas of the spine")
        return found

    @cached_property
    def numbered(self) -> np.ndarray:
        """The row of each area in the table of areas."""
        return self._rows(GEOGRAPHY)

    @cached_property
    def _public_rows(self) -> np.ndarray:
        return self._rows(PUBLIC)

    def numbers(self, names: Sequence[str]) -> sparse.csr_array:
        """Public numbers of records `(n_areas, n)`, by their columns."""
        table = read_table(self._root / PUBLIC, names)
        columns = [table[name].to_numpy()[self._public_rows, None] for name in names]
        return sparse.csr_array(sparse.hstack([sparse.csr_array(own) for own in columns]))

    def multiples(self, universe: str, number: int) -> sparse.csr_array:
        """Records `(n_areas, n)` that a declared bound multiplies, for each of its answers."""
        bound = self._declaration.universe(universe)["bounds"][number]
        if not self._declaration.has_digits:
            prefix = f"{universe}/{number}/"
            with pq.ParquetFile(self._root / PUBLIC) as file:
                names = [n for n in file.schema_arrow.names if n.startswith(prefix)]
            return self.numbers(sorted(names, key=lambda name: int(name.rpartition("/")[2])))
        if bound["per"] == "units":
            return self.numbers(["housing_units"])
        none = sparse.csr_array((self._spine.n_areas, 1), dtype=np.int64)
        return sparse.csr_array(sparse.hstack([none, self.numbers(FACILITIES)]))

    def facilities(self) -> np.ndarray:
        """Number of facilities of each area."""
        return np.asarray(self.numbers(FACILITIES).sum(axis=1)).ravel()

    def codes(self, name: str) -> pa.Array:
        """Code of each area's geounit of a declared geolevel, or in another column."""
        column = read_table(self._root / GEOGRAPHY, [name])[name].combine_chunks()
        return column.take(pa.array(self.numbered))

    @cached_property
    def code_columns(self) -> tuple[str, ...]:
        """The geolevels below the root that the table of areas has a column for."""
        names = pq.read_schema(self._root / GEOGRAPHY).names
        return tuple(name for name in self._declaration.geolevels[1:] if name in names)

    def units(self, geolevel: str) -> tuple[np.ndarray, pa.StringArray]:
        """Number of each area's geounit of a declared geolevel, and the paths of these."""
        if self._declaration.has_digits:
            path = pc.utf8_slice_codeunits(self._spine.area_geocode, 0, 2)
        elif geolevel == self._declaration.geolevels[0]:
            path = pa.array(["0"] * self._spine.n_areas)
        else:
            names = self.code_columns[: self.code_columns.index(geolevel) + 1]
            path = paths([self.codes(name) for name in names])
        coded = path.dictionary_encode()
        return coded.indices.to_numpy(), coded.dictionary

    def held(self, universe: str, name: str, n_rows: int) -> sparse.csr_array:
        """Answers `(n_areas, n_rows)` of an earlier release."""
        mine = [("universe", "=", universe), ("held", "=", name)]
        table = pq.read_table(
            self._root / "spine" / "held.parquet", columns=["area", "row", "count"], filters=mine
        )
        area, row, count = (column.to_numpy() for column in table.columns)
        n_known = pq.read_metadata(self._root / GEOGRAPHY).num_rows
        every = sparse.csr_array((count, (area, row)), shape=(n_known, n_rows))
        return sparse.csr_array(every[self.numbered])


def paths(codes: Sequence[pa.Array]) -> pa.StringArray:
    """Paths of areas by their codes from the first geolevel below the root on, joined by points; in
    a code all but ASCII letters, digits, "-", "_" and "~" is percent-encoded."""
    parts = []
    for column in codes:
        coded = column.cast(pa.string()).dictionary_encode()
        texts = [quote(text, safe="").replace(".", "%2E") for text in coded.dictionary.to_pylist()]
        parts.append(pa.array(texts, pa.string()).take(coded.indices))
    return pc.binary_join_element_wise(*parts, ".")


def labels_of(attribute: Mapping[str, Any]) -> tuple[str, ...]:
    """Labels of the levels that a declared attribute has, in their order."""
    if "rules" in attribute:
        return tuple(dict.fromkeys(rule["level"] for rule in attribute["rules"]))
    if "contains" in attribute:
        labels = list(attribute.get("labels", ("no", "yes")))
    elif "levels" in attribute:
        labels = list(attribute["levels"])
    elif "numbers" in attribute:
        labels = [
            str(number) for number in range(attribute["numbers"][0], attribute["numbers"][1] + 1)
        ]
    else:
        lasts = [*(first - 1 for first in attribute["bins"][1:]), attribute["largest"]]
        ends = zip(attribute["bins"], lasts, strict=True)
        labels = attribute.get("labels") or [f"{a}-{b}" if b > a else str(a) for a, b in ends]
    return (*labels, *([attribute["blank"]] if "blank" in attribute else []))


def groups_of(labels: Sequence[str], levels: Mapping[str, Any]) -> tuple[int, ...]:
    """The group of each label: among several patterns that match it the longest has it, and its own
    name or a range before all; the group without members has the rest.
    """
    rest = next((group for group, members in enumerate(levels.values()) if not members), -1)
    found = [(0.0, rest)] * len(labels)
    for group, members in enumerate(levels.values()):
        for member in wrap_in_list(members):
            is_pattern = isinstance(member, str) and "*" in member and member not in labels
            weight = len(member) if is_pattern else math.inf
            for at in positions_of(member, labels):
                found[at] = max(found[at], (weight, group))
    return tuple(group for _, group in found)


def positions_of(level: Any, labels: Sequence[str]) -> list[int]:
    """Positions of a level by its label or position, of a range of numbers, or of a pattern.

    >>> positions_of("0-9", ["0-4", "5-9", "10-14"]), positions_of("b*", ["a", "b", "bc"])
    ([0, 1], [1, 2])
    """
    if isinstance(level, int):
        return [level]
    if level in labels:
        return [list(labels).index(level)]
    if isinstance(level, str) and "*" in level:
        pattern = re.compile(".*".join(map(re.escape, level.split("*"))), re.DOTALL)
        return [at for at, own in enumerate(labels) if pattern.fullmatch(own)]
    first, last = _ends(f"{level['from']}-{level['to']}" if isinstance(level, Mapping) else level)
    own = [_ends(label) for label in labels]
    return [at for at, (low, high) in enumerate(own) if first <= low and high <= last]


@cache
def _ends(label: str) -> tuple[float, float]:
    """First and last number of a label such as 18-24 or 18; NaN for any other."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", label, re.ASCII)
    return (math.nan, math.nan) if found is None else (int(found[1]), int(found[2] or found[1]))


def wrap_in_list(value: Any) -> list[Any]:
    """Wrap a single value in a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def spell_query(query: str) -> str:
    """A query's name as files spell it, its parts joined by ` * `.

    >>> spell_query("sex*age")
    'sex * age'
    """
    return PRODUCT_SIGN.join(part.strip() for part in query.split("*"))


def incidence(row: np.ndarray, n_rows: int) -> sparse.csr_array:
    """0/1 matrix `(n, n_rows)` with a one in the row's place of each, none where that is -1."""
    place = np.flatnonzero(row >= 0)
    ones = np.ones(place.size, dtype=np.int64)
    return sparse.csr_array(sparse.coo_array((ones, (place, row[place])), (row.size, n_rows)))


def no_counts(n: int, n_rows: int) -> sparse.csr_array:
    """Counts `(n, n_rows)` that are all zero."""
    return sparse.csr_array((n, n_rows), dtype=np.int64)
