"""Small censuses of one declared universe, all neighbours of an input, and their distances."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from spineflow.tasks.census import census_input, joins
from spineflow.tasks.census.census import Census
from spineflow.tasks.census.census_input import CensusTables
from spineflow.tasks.census.counting import count_files
from spineflow.tasks.census.members import completed_units
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.tables.value_tallies import ValueTally
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import guarantee_of
from spineflow.tasks.topdown.workload.statement import statement_of
from spineflow.validation.rules import by_the_rules_alone

Row = tuple[str, ...]
Tables = dict[str, tuple[Row, ...]]

AREAS = ("x", "y")
PURE = {"mechanism": "discrete_laplace", "epsilon": "1"}
GAUSSIAN = {"rho": "1", "delta": "1e-10"}


@dataclass(frozen=True)
class Case:
    """A census of one universe `u`, and the values that the columns of its tables may have.

    own : the universe's declaration; `attributes` are those that it has.
    columns : by table, its columns and their values.
    """

    own: dict[str, Any]
    attributes: dict[str, Any]
    columns: dict[str, dict[str, tuple[str, ...]]]
    contributions: dict[str, Any] = field(default_factory=dict)

    def settings(self, budget: dict[str, str]) -> TopdownSettings:
        """Settings of a run of the universe."""
        census: dict[str, Any] = {
            "geography": {"table": "areas", "geolevels": ["all", "area"]},
            "attributes": self.attributes,
            "universes": {"u": {"attributes": list(self.attributes), "area": "area"} | self.own},
        }
        if self.contributions:
            census["contributions"] = self.contributions
        return TopdownSettings.model_validate(
            {
                "census": deepcopy(census),
                "input": {"areas": "a", **{name: name for name in self.columns}},
                "privacy": {"dataset": "d"},
                "geography": {"spine": "conventional"},
                "budget": {"u": {**budget, "queries": {"other": {"detailed": "1"}}}},
            }
        )

    def rows(self, table: str) -> list[Row]:
        """All rows that a table may have."""
        return list(product(*self.columns[table].values()))


class Reader:
    """Reads tables of a census from files, as a run does."""

    def __init__(self, census: Census, folder: Path) -> None:
        self.census, self.folder = census, folder
        self.known: dict[str, dict[str, np.ndarray] | None] = {}
        self.write("areas", [{"area": area} for area in AREAS])
        # The areas are those of all neighbours.
        areas = CensusTables.of(census, {}, {"areas": folder / "areas.csv"})
        with by_the_rules_alone():
            self.areas = areas.check().accepted().areas

    def write(self, table: str, rows: Sequence[Mapping[str, str]]) -> None:
        with (self.folder / f"{table}.csv").open("w", newline="", encoding="utf-8") as file:
            # A column more, since a text file of one column has no separator.
            csv.writer(file).writerows([(*rows[0], ""), *((*row.values(), "") for row in rows)])

    def histograms(
        self, tables: Mapping[str, Sequence[Mapping[str, str]]]
    ) -> dict[str, np.ndarray] | None:
        """Records by area and cell of every universe; None for tables that a rule refuses."""
        ordered = {
            name: sorted(rows, key=lambda row: tuple(row.items())) for name, rows in tables.items()
        }
        key = repr(ordered)
        if key not in self.known:
            # A file without rows is refused.
            self.known[key] = self._read(ordered) if all(ordered.values()) else None
        return self.known[key]

    def _read(
        self, tables: Mapping[str, Sequence[Mapping[str, str]]]
    ) -> dict[str, np.ndarray] | None:
        for name, rows in tables.items():
            self.write(name, rows)
        paths = {name: self.folder / f"{name}.csv" for name in ("areas", *tables)}
        whole = CensusTables.of(self.census, {}, paths)
        files = {**whole.files}
        for table, members in self.census.declared.members.items():
            target = self.folder / "completed.parquet"
            target.unlink(missing_ok=True)
            made = completed_units(files[table], files[members.table], members.key, target)
            if made.findings:
                return None
            files[table] = made.units
        found = {}
        for name, universe in self.census.universes.items():
            read: set[tuple[str, str]] = set()
            own = replace(whole, schemas={name: universe.schema}, files=files, is_recognised=False)
            evidence = ValueTally()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(joins, "read_partitions", noting(joins.read_partitions, read))
                patch.setattr(census_input, "load_areas", lambda *_: self.areas)
                before = own.read_before(evidence)
                counter, of_records = own.counter(before, name, evidence)
                count_files(counter, of_records, evidence)
            known = {(path.table, column) for path in universe.paths for column in path.read}
            known |= {(table, one.person) for table, one in universe.contributions.items()}
            assert read <= known, f"{name} reads {read - known} by no path"
            rules = own.rules(before, {name: counter}, evidence)
            if evidence.findings(rules, files):
                return None
            found[name] = counter.totals[name].toarray()
        return found

    def norms(self, universe: str, before: np.ndarray, after: np.ndarray) -> tuple[int, int]:
        """The largest L1 and squared L2 of the change of a query group at a geolevel."""
        schema, most = self.census.universes[universe].schema, (0, 0)
        for chosen in query_groups(len(schema.attributes)):
            name = " * ".join(schema.attributes[n] for n in chosen) or "total"
            moved = (after - before) @ marginal_query(schema, name).matrix.T.toarray()
            for change in (moved, moved.sum(axis=0)):
                most = max(most[0], int(abs(change).sum())), max(most[1], int((change**2).sum()))
        return most


def noting(of: Callable, read: set[tuple[str, str]]) -> Callable:
    """A reader of batches that notes tables and columns."""

    def noted(files: Any, selection: Any, *more: Any, **words: Any) -> Any:
        read.update((files[0].table, column) for column in selection.required)
        return of(files, selection, *more, **words)

    return noted


def of_rows(rows: Sequence[Row], candidates: Sequence[Row]) -> Iterator[tuple[Row, ...]]:
    """A row added, removed, or changed."""
    for new in candidates:
        yield (*rows, new)
    for place in range(len(rows)):
        rest = (*rows[:place], *rows[place + 1 :])
        yield rest
        for new in candidates:
            if new != rows[place]:
                yield (*rest, new)


def neighbours(case: Case, tables: Tables, table: str) -> Iterator[Tables]:
    """All inputs in which one record of a table, or one person's records, differ."""
    rows, candidates = tables[table], case.rows(table)
    names = list(case.columns[table])
    told, count = case.contributions.get(table), case.own.get("count")
    found: Iterator[tuple[Row, ...]]
    if told is not None:
        at, most = names.index(told["person"]), told["records_per_person"]
        found = chain.from_iterable(
            (
                (*(row for row in rows if row[at] != person), *own)
                for n in range(most + 1)
                for own in product([row for row in candidates if row[at] == person], repeat=n)
            )
            for person in case.columns[table][told["person"]]
        )
    elif count is not None and table == case.own["table"] and "largest_count" not in case.own:
        # A record of a row that stands for several: the rows as they would be one by one.
        at = names.index(count)
        single = [row for row in rows for _ in range(int(row[at]))]
        ones = {(*row[:at], "1", *row[at + 1 :]) for row in [*candidates, *single]}
        single = [(*row[:at], "1", *row[at + 1 :]) for row in single]
        found = of_rows(single, sorted(ones))
    else:
        found = of_rows(rows, candidates)
    for new in found:
        yield tables | {table: tuple(new)}


@cache
def query_groups(n_attributes: int) -> list[tuple[int, ...]]:
    """Sets of attributes that a query may tell apart."""
    numbers = range(n_attributes)
    return [c for n in range(n_attributes + 1) for c in combinations(numbers, n)]


def charged(case: Case) -> tuple[int, int]:
    """The norms that the ledger's figure per person pays for: of pure and of concentrated DP."""
    pure = guarantee_of(case.settings(PURE).budget_of("u"))
    gaussian = guarantee_of(case.settings(GAUSSIAN).budget_of("u"))
    l1 = 2 * math.sqrt(2 * pure.bounded_rho) / pure.parameter
    assert l1 == int(l1)
    return int(l1), int(2 * gaussian.bounded_rho / gaussian.parameter)


def protected_tables(case: Case) -> list[str]:
    """The tables whose records the certificate says that it protects."""
    text = " ".join(statement_of(case.settings(GAUSSIAN)).change)
    return [name for name in case.columns if re.search(f"One changed record of {name} ", text)]


def histogram(case: Case, reader: Reader, tables: Tables) -> np.ndarray | None:
    """Records of the universe by area and cell; None for tables that a rule refuses."""
    rows = {
        name: [dict(zip(case.columns[name], row, strict=True)) for row in own]
        for name, own in tables.items()
    }
    found = reader.histograms(rows)
    return None if found is None else found["u"]


def true_norms(case: Case, tables: Tables, folder: Path) -> tuple[int, int]:
    """The largest norms over all neighbours in tables that the certificate calls protected."""
    reader = Reader(case.settings(GAUSSIAN).compiled_census, folder)
    before, most = histogram(case, reader, tables), (0, 0)
    assert before is not None, "the input is refused"
    for table in protected_tables(case):
        for other in neighbours(case, tables, table):
            after = histogram(case, reader, other)
            if after is not None:
                found = reader.norms("u", before, after)
                most = max(most[0], found[0]), max(most[1], found[1])
    return most


def is_refused(case: Case, tables: Tables, folder: Path) -> bool:
    """Whether a rule refuses the input."""
    reader = Reader(case.settings(GAUSSIAN).compiled_census, folder)
    return histogram(case, reader, tables) is None


def parity(*columns: str) -> dict[str, Any]:
    """An attribute that every change of a number by one changes."""
    odd = [
        {"level": "odd", "where": {c: ["1", "3"] if c == one else ["0", "2", "4"] for c in columns}}
        for one in columns
    ]
    return {"rules": [*odd, {"level": "even", "where": {}}]}


def level_of(column: str) -> dict[str, Any]:
    """An attribute that is a column of levels a and b."""
    return {"column": column, "levels": {"a": ["a"], "b": ["b"]}}


def occupants(column: str, key: str = "id", table: str = "people", **more: Any) -> dict[str, Any]:
    """A declaration of occupants."""
    return {"table": table, "column": column, "key": key, **more}


IDS = ("1", "2")
HOMES = {"id": IDS, "area": AREAS, "tenure": ("a", "b")}
OWN = Case({"table": "homes"}, {"tenure": level_of("tenure")}, {"homes": HOMES})
TOLD = Case(
    {"table": "homes", "occupants": {"members": occupants("home")}},
    {"odd": parity("members.number")},
    {"homes": {"id": IDS, "area": AREAS}, "people": {"home": IDS}},
)
FOUR = ("1", "2", "3", "4")
TWO_REFERENCES = Case(
    {
        "table": "homes",
        "occupants": {"members": occupants("home"), "workers": occupants("work")},
    },
    {"odd": parity("members.number", "workers.number")},
    {"homes": {"id": FOUR, "area": ("x",)}, "people": {"home": FOUR, "work": FOUR}},
)
BUILDINGS = Case(
    {
        "table": "homes",
        "occupants": {"members": occupants("building", "building", records_per_key=2)},
    },
    {"odd": parity("members.number")},
    {"homes": {"building": IDS, "area": AREAS}, "people": {"building": IDS}},
)
SIZE_RULES = [
    {"level": "b", "where": {"mates.number": ["1"], "sex": ["m"]}},
    {"level": "b", "where": {"mates.number": ["2"], "sex": ["f"]}},
    {"level": "a", "where": {}},
]
MATES = Case(
    {
        "table": "people",
        "occupants": {"mates": occupants("home", "home", records_per_key=2)},
    },
    {"size": {"rules": SIZE_RULES}},
    {"people": {"home": ("1", "2", "3"), "area": AREAS, "sex": ("m", "f")}},
)
THROUGH = Case(
    {
        "table": "people",
        "through": {"column": "home", "table": "homes", "key": "id", "records_per_row": 2},
    },
    {"tenure": level_of("homes.tenure")},
    {"people": {"home": IDS}, "homes": HOMES},
)
MEMBERSHIP = Case(
    THROUGH.own | {"where": {"homes.tenure": ["a"]}},
    {"sex": level_of("sex")},
    {"people": {"home": IDS, "sex": ("a", "b")}, "homes": HOMES},
)
STEPS = Case(
    {
        "table": "people",
        "through": [
            {"column": "home", "table": "homes", "key": "id", "records_per_row": 1},
            {"column": "house", "table": "houses", "key": "id", "records_per_row": 2},
        ],
    },
    {"kind": level_of("houses.kind")},
    {
        "people": {"home": IDS},
        "homes": {"id": IDS, "house": IDS},
        "houses": {"id": IDS, "area": AREAS, "kind": ("a", "b")},
    },
)
HEADS = Case(
    {
        "table": "people",
        "through": {"column": "head", "table": "people", "key": "id", "records_per_row": 2},
    },
    {
        "role": {
            "rules": [
                {"level": "a", "where": {"people.role": ["a"], "own": ["a"]}},
                {"level": "b", "where": {"people.role": ["b"], "own": ["a"]}},
                {"level": "b", "where": {}},
            ]
        }
    },
    {
        "people": {
            "id": ("1", "2", "3"),
            "head": IDS,
            "area": ("x",),
            "role": ("a", "b"),
            "own": ("a", "b"),
        }
    },
)
MOTHERS = Case(
    {"table": "people", "occupants": {"children": occupants("mother", "id")}},
    {
        "fertility": {
            "rules": [
                {"level": "a", "where": {"children.number": ["0"], "sex": ["a"]}},
                {"level": "a", "where": {"children.number": ["1"], "sex": ["b"]}},
                {"level": "b", "where": {}},
            ]
        }
    },
    {
        "people": {
            "id": ("1", "2", "3"),
            "mother": ("", "1", "2"),
            "sex": ("a", "b"),
            "area": ("x",),
        }
    },
)
JOBS = Case(
    {"table": "jobs"},
    {"trade": level_of("trade")},
    {"jobs": {"person": IDS, "trade": ("a", "b"), "area": AREAS}},
    {"jobs": {"person": "person", "records_per_person": 2}},
)
WORKERS = Case(
    {"table": "firms", "occupants": {"workers": occupants("firm", table="jobs")}},
    {"odd": parity("workers.number")},
    {"firms": {"id": FOUR, "area": ("x",)}, "jobs": {"person": IDS, "firm": FOUR}},
    {"jobs": {"person": "person", "records_per_person": 2}},
)
COUNTED = Case(
    {"table": "groups", "count": "n"},
    {"tenure": level_of("tenure")},
    {"groups": {"tenure": ("a", "b"), "area": AREAS, "n": ("0", "1", "2", "3")}},
)
ROWS = Case(COUNTED.own | {"largest_count": 3}, COUNTED.attributes, COUNTED.columns)
COUNTED_HOMES = Case(
    TOLD.own | {"count": "n", "largest_count": 2},
    TOLD.attributes,
    {"homes": {"id": IDS, "area": AREAS, "n": IDS}, "people": {"home": IDS}},
)
COLUMNS = {
    "people": {"id": ("1", "2", "3"), "home": IDS, "work": IDS, "area": AREAS, "n": IDS},
    "homes": {"id": IDS, "area": AREAS, "kind": ("a", "b")},
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A declaration of any references between two tables, and attributes of what they tell."""
    table = draw(st.sampled_from(("people", "homes")))
    keys = ("id", "home", "work") if table == "people" else ("id",)
    own: dict[str, Any] = {"table": table}
    told = ["kind"] if table == "homes" else ["work", "home"]
    wanted = {table}
    names = draw(st.lists(st.sampled_from(("first", "second")), max_size=2, unique=True))
    for name in names:
        own.setdefault("occupants", {})[name] = occupants(
            draw(st.sampled_from(("home", "work"))),
            draw(st.sampled_from(keys)),
            records_per_key=draw(st.integers(1, 2)),
        )
        told.append(f"{name}.number")
        wanted.add("people")
    if table == "people" and draw(st.booleans()):
        step: dict[str, Any] = {"column": "home", "table": "homes", "key": "id"}
        most = draw(st.none() | st.integers(1, 3))
        own["through"] = step | ({} if most is None else {"records_per_row": most})
        told.append("homes.kind")
        wanted.add("homes")
    if table == "people" and draw(st.booleans()):
        own["count"] = "n"
        if draw(st.booleans()):
            own["largest_count"] = 2
    codes = st.lists(st.sampled_from(("0", "1", "2", "a")), min_size=1, max_size=2, unique=True)
    where = st.dictionaries(st.sampled_from(told), codes, min_size=1, max_size=2)
    rules = [{"level": level, "where": draw(where)} for level in ("a", "b")]
    attributes = {"told": {"rules": [*rules, {"level": "c", "where": {}}]}}
    read = {column for rule in rules for column in rule["where"]}
    read |= {one["column"] for one in own.get("occupants", {}).values()}
    read |= {one["key"] for one in own.get("occupants", {}).values()} | {"id", "area", "home"}
    read |= {"kind"} if "homes.kind" in read else set()
    columns = {
        name: {
            column: values
            for column, values in COLUMNS[name].items()
            if column in read or (name == "people" and column == own.get("count"))
        }
        for name in sorted(wanted)
    }
    return Case(own, attributes, columns)


CARS = Case(
    TOLD.own
    | {"occupants": {"members": occupants("home"), "cars": occupants("home", table="cars")}},
    {"odd": parity("members.number", "cars.number")},
    TOLD.columns | {"cars": {"home": IDS}},
)

ONE_HOME_EACH = {"homes": (("1", "x"), ("2", "x")), "people": (("1",), ("2",))}
REACHED: dict[str, tuple[Case, Tables, tuple[int, int]]] = {
    "own": (OWN, {"homes": (("1", "x", "a"), ("2", "y", "b"))}, (2, 2)),
    "occupants": (TOLD, ONE_HOME_EACH, (4, 8)),
    "occupants of two tables": (CARS, ONE_HOME_EACH | {"cars": (("1",), ("1",))}, (4, 8)),
    "two references": (
        TWO_REFERENCES,
        {
            "homes": tuple((home, "x") for home in FOUR),
            "people": (("1", "3"), ("2", "4")),
        },
        (8, 32),
    ),
    "a key that repeats": (
        BUILDINGS,
        {
            "homes": (("1", "x"), ("1", "x"), ("2", "x"), ("2", "x")),
            "people": (("1",), ("2",)),
        },
        (8, 32),
    ),
    "others of the same table": (
        MATES,
        {"people": (("1", "x", "m"), ("1", "x", "m"), ("2", "x", "f"))},
        (6, 18),
    ),
    "the way to the area": (
        THROUGH,
        {"people": (("1",), ("1",)), "homes": (("1", "x", "a"), ("2", "y", "a"))},
        (4, 8),
    ),
    "membership by a joined column": (
        MEMBERSHIP,
        {"people": (("1", "a"), ("1", "a")), "homes": (("1", "x", "a"), ("2", "y", "a"))},
        (4, 8),
    ),
    "two steps": (
        STEPS,
        {
            "people": (("1",), ("2",)),
            "homes": (("1", "1"), ("2", "1")),
            "houses": (("1", "x", "a"), ("2", "y", "a")),
        },
        (4, 8),
    ),
    "the own table on the way": (
        HEADS,
        {
            "people": (
                ("1", "2", "x", "a", "a"),
                ("2", "1", "x", "a", "a"),
                ("3", "1", "x", "a", "a"),
            )
        },
        (6, 18),
    ),
    "children": (
        MOTHERS,
        {"people": (("1", "", "b", "x"), ("2", "", "a", "x"), ("3", "1", "a", "x"))},
        (6, 18),
    ),
    "several records a person": (
        JOBS,
        {"jobs": (("1", "a", "x"), ("1", "a", "x"), ("2", "b", "y"))},
        (4, 8),
    ),
    "occupants of several records": (
        WORKERS,
        {
            "firms": tuple((firm, "x") for firm in FOUR),
            "jobs": (("1", "1"), ("1", "2"), ("2", "3"), ("2", "4")),
        },
        (8, 32),
    ),
    "a record of a row": (COUNTED, {"groups": (("a", "x", "2"), ("b", "y", "1"))}, (2, 2)),
    "a row of records": (ROWS, {"groups": (("a", "x", "3"), ("b", "y", "1"))}, (6, 18)),
    "occupants of rows of records": (
        COUNTED_HOMES,
        {"homes": (("1", "x", "2"), ("2", "x", "2")), "people": (("1",), ("2",))},
        (8, 32),
    ),
}
