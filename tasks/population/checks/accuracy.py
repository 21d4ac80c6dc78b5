"""How far persons and households contradict each other, area by area, and the section of a report.

Records of separate releases, of one population and, of input that is not confidential, of the truth
are measured alike, from the records alone. A household is described by its declared type, so that
seven members represent seven and more, as in published tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...census.households import (
    ADULT,
    CHILDREN,
    FEMALE,
    HOUSEHOLDER,
    MALE,
    OTHER_GENERATIONS,
    OWN_CHILDREN,
    RELATIVES,
    SCHOOL,
    YOUNGEST_HOUSEHOLDER,
)
from ...census.schema import Schema
from ...pages.document import NONE, Cell, Details, Section, Table
from ...runs.directory import RunDirectory
from ...runs.files import read_record
from ..ingest.released import PersonsAndHouseholds, Sources, group_by_block, read_released
from ..release.population import NOBODY, PERSONS_FILE, SUMMARY_FILE, UNITS_FILE
from ..workload import household_types, person_levels
from ..workload.household_types import (
    COUPLES,
    FIRST_AGES,
    FIRST_RELATIONSHIP,
    MARRIED,
    NO_COUPLE,
    OPEN_SIZE,
    PARTNERS,
    ROLE_OF_RELATIONSHIP,
    head_races,
)

GEOLEVELS = {"block": 16, "block group": 12, "tract": 11, "county": 5}
"""Leading digits of a block's code that identify the geounit."""

MOST_MEMBERS = 99_999
"""Persons in a household of the open size at most, as the Census Edited File can write."""

ELDERLY_AGES = (60, 65, 75)
"""First ages of the oldest member that households are counted by, from level 1 on."""

SAME_SEX = tuple(at for at, couple in enumerate(COUPLES) if couple.endswith("same"))
"""Indices of such couples."""


class Measure(NamedTuple):
    """A measure's number, and the statement true of the areas that it counts; `part` is one of
    several statements that make it up, empty for the measure as a whole.
    """

    number: str
    words: str
    part: str = ""


@dataclass(frozen=True)
class Ratio:
    """A number of areas or persons, and the number that it is a share of."""

    number: int
    of: int

    @property
    def percent(self) -> float | None:
        """The ratio in percent; None of nothing."""
        return 100 * self.number / self.of if self.of else None


class _Areas:
    """Persons in households as members, and households by their type's attributes, each with its
    area, `(n,)` each.

    n : number of areas. of_person, of_home : the area of each. levels : of households.
    couple : its place in `COUPLES`. own, children : masks `(2, n)` of whether own children and
    all children are under 6, and from 6 to 17.
    """

    def __init__(self, records: PersonsAndHouseholds, digits: int) -> None:
        """Group by the areas given by the first digits of a block's code."""
        codes, area = np.unique(records.blocks.astype(f"<U{digits}"), return_inverse=True)
        area = area.reshape(-1)
        inside = records.inside
        people = records.person_levels[:, inside]
        self.n = len(codes)
        self.of_person = area[records.person_block[inside]]
        self.members = person_levels.members_of(people)
        self.is_alone = people[person_levels.KIND] == person_levels.relationships().alone
        self.of_home = area[records.household_block]
        self.levels = records.household_levels
        types, ages = household_types.parts_of_types(), np.array([[1], [2]])
        parts = {name: of[self.levels[household_types.TYPE]] for name, of in types.items()}
        self.size, self.couple = parts["size"], parts["couple"]
        self.own, self.children = (parts[of] & ages > 0 for of in ("own", "children"))
        self.has_relatives = parts["relatives"] > 0
        self.has_minors = parts["minors"] > 0
        self.has_generations = parts["generations"] > 0

    def persons(self, mask: np.ndarray) -> np.ndarray:
        """Number of the persons of a mask, by area `(n_areas,)`."""
        return np.bincount(self.of_person[mask], minlength=self.n)

    def homes(self, number: np.ndarray) -> np.ndarray:
        """Sums over households of whole numbers, or of a mask, by area `(n_areas,)`."""
        return np.bincount(self.of_home, weights=number, minlength=self.n).astype(np.int64)

    @property
    def most(self) -> np.ndarray:
        """Members of each household at most `(n,)`."""
        return np.where(self.size == OPEN_SIZE, MOST_MEMBERS, self.size)

    def are_equal(
        self, persons: np.ndarray, person: np.ndarray, homes: np.ndarray, home: np.ndarray
    ) -> np.ndarray:
        """Whether an area has as many of the persons of a mask as of the households of another, of
        each kind `(n_areas,)`; kinds are whole numbers from 0 on of all persons and households.
        """
        kind = np.concatenate([person[persons], home[homes]])
        n_kinds = 1 + kind.max(initial=0)
        area = np.concatenate([self.of_person[persons], self.of_home[homes]])
        key, row = np.unique(area * n_kinds + kind, return_inverse=True)
        sign = np.repeat([1, -1], [persons.sum(), homes.sum()])
        difference = np.bincount(row.reshape(-1), weights=sign, minlength=len(key))
        found = np.ones(self.n, dtype=bool)
        found[key[difference != 0] // n_kinds] = False
        return found


def measure_areas(records: PersonsAndHouseholds, digits: int) -> dict[Measure, Ratio]:
    """All measures of the areas given by the first digits of a block's code.

    Shares are of areas with persons in households or occupied units; for a race or origin, of areas
    with such a householder. The last two are differences in percent of the persons in households.
    Which units persons live in is measured where they have units.
    """
    areas = _Areas(records, digits)
    everybody = areas.persons(np.ones(len(areas.of_person), dtype=bool))
    occupied = areas.homes(np.ones(len(areas.of_home)))
    is_any = (everybody > 0) | (occupied > 0)
    sizes = areas.homes(areas.size)

    def share(so: np.ndarray, among: np.ndarray = is_any) -> Ratio:
        return Ratio(int((so & among).sum()), int(among.sum()))

    alone, empty = (occupied > 0) & (everybody == 0), (occupied == 0) & (everybody > 0)
    one = Measure("M1", "occupied units and nobody, or persons and no occupied unit")
    equal = Measure("M2", "as many persons as the sizes of households add up to")
    allowed = Measure("M3", "as many persons as sizes allow, the open one included")
    found = {
        one: share(alone | empty),
        one._replace(part="occupied units and nobody"): share(alone),
        one._replace(part="persons and no occupied unit"): share(empty),
        equal: share(everybody == sizes),
        allowed: share((sizes <= everybody) & (everybody <= areas.homes(areas.most))),
    }
    one = Measure("M4", "a householder of a race or origin of which nobody is")
    lacking = np.zeros(areas.n, dtype=bool)
    parts = {}
    for part, of_person, of_home in _races_and_origins(areas):
        there = areas.homes(of_home) > 0
        absent = there & (areas.persons(of_person) == 0)
        parts[one._replace(part=part)] = share(absent, there)
        lacking |= absent
    found |= {one: share(lacking, occupied > 0), **parts}
    for one, statements in (
        (Measure("M5", "as many householders of each kind as households"), _householders(areas)),
        (Measure("M6", "as many spouses and partners of each kind as couples"), _couples(areas)),
        (Measure("M7", "persons for all that households say of members"), _presence(areas)),
    ):
        met = {one._replace(part=part): so for part, so in statements}
        found[one] = share(np.logical_and.reduce(list(met.values())))
        if len(met) > 1:
            found |= {part: share(so) for part, so in met.items()}
    if (homeless := _homeless(records)) is not None:
        without = areas.persons(homeless)
        found[Measure("M8", "an occupied unit of the block for every person")] = share(without == 0)
    n, difference = int(everybody.sum()), everybody - sizes
    words = "difference of persons and sizes, of the persons"
    found[Measure("M9", f"gross {words}")] = Ratio(int(abs(difference).sum()), n)
    found[Measure("M9", f"net {words}")] = Ratio(int(difference.sum()), n)
    return found


def _races_and_origins(areas: _Areas) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each race and origin of householders, with masks of its persons and households."""
    schema = household_types.universe().schema
    for axis, of_person in (
        (household_types.RACE, head_races(areas.members.race)),
        (household_types.ORIGIN, areas.members.hispanic - 1),
    ):
        for level, label in enumerate(schema.labels(schema.attributes[axis])):
            yield label, of_person == level, areas.levels[axis] == level


def _householders(areas: _Areas) -> Iterator[tuple[str, np.ndarray]]:
    """Whether householders are as many as households, by attributes common to both."""
    members, heads = areas.members, areas.members.are(HOUSEHOLDER)
    every = np.ones(len(areas.of_home), dtype=bool)
    pairs = {
        "sex": (members.sex - MALE, areas.levels[household_types.SEX]),
        # From 1 on: persons below the first age have no band.
        "age": (
            np.searchsorted(FIRST_AGES, members.age, side="right"),
            areas.levels[household_types.AGE] + 1,
        ),
        "origin": (members.hispanic - 1, areas.levels[household_types.ORIGIN]),
        "race": (head_races(members.race), areas.levels[household_types.RACE]),
        "alone or not": (areas.is_alone.astype(int), (areas.size == 1).astype(int)),
    }
    person, home = np.zeros_like(members.age), np.zeros_like(areas.size)
    yield "their number", areas.are_equal(heads, person, every, home)
    for name, (of_person, of_home) in pairs.items():
        yield name, areas.are_equal(heads, of_person, every, of_home)
        n_levels = 1 + max(of_person.max(initial=0), of_home.max(initial=0))
        person, home = person * n_levels + of_person, home * n_levels + of_home
    yield "all of these at once", areas.are_equal(heads, person, every, home)


def _couples(areas: _Areas) -> Iterator[tuple[str, np.ndarray]]:
    """Whether spouses and partners by their own sex are as many as couples by the householder's."""
    members = areas.members
    role = ROLE_OF_RELATIONSHIP[members.relationship - FIRST_RELATIONSHIP]
    head = areas.levels[household_types.SEX]
    is_same = np.isin(areas.couple, SAME_SEX)
    sex = np.where(is_same, head, FEMALE - MALE - head)
    person = (role - PARTNERS[0]) * 2 + members.sex - MALE
    is_partner, has_partner = np.isin(role, PARTNERS), areas.couple != NO_COUPLE
    yield "", areas.are_equal(is_partner, person, has_partner, areas.couple * 2 + sex)


def _presence(areas: _Areas) -> Iterator[tuple[str, np.ndarray]]:
    """Whether there are at least as many persons of a kind as households need, and no more than
    they can have.
    """
    members, age = areas.members, areas.members.age
    own, child = members.are(*OWN_CHILDREN), members.are(*CHILDREN)
    # Members other than the householder and the householder's partner.
    others = areas.most - 1 - (areas.couple != NO_COUPLE)
    bands = {"under 6": age < SCHOOL, "6 to 17": (age >= SCHOOL) & (age < ADULT)}
    has_both = areas.own[0] & areas.own[1]
    for (band, of_age), has in zip(bands.items(), areas.own, strict=True):
        there = areas.persons(own & of_age)
        most = areas.homes(has * (others - has_both))
        yield f"own children {band}", (areas.homes(has) <= there) & (there <= most)
    minors = areas.persons(age < ADULT)
    with_minors = areas.homes(areas.has_minors)
    needed = with_minors + areas.homes(areas.children[0] & areas.children[1])
    yield "minors", (needed <= minors) & ((minors == 0) | (with_minors > 0))
    of_couples = (age >= YOUNGEST_HOUSEHOLDER) & (age < ADULT) & ~child
    childless = areas.has_minors & ~(areas.children[0] | areas.children[1])
    yield "minors who are no children", areas.homes(childless) <= areas.persons(of_couples)
    heads = members.are(HOUSEHOLDER)
    for level, cut in enumerate(ELDERLY_AGES, start=1):
        has = areas.levels[household_types.ELDERLY] >= level
        is_younger = areas.levels[household_types.AGE] < FIRST_AGES.index(cut)
        there = areas.persons(~heads & (age >= cut))
        least, most = areas.homes(has & is_younger), areas.homes(has * (areas.most - 1))
        words = f"persons of {cut} years and over who are no householders"
        yield words, (least <= there) & (there <= most)
    relatives = areas.persons(members.are(*RELATIVES))
    is_married = np.isin(areas.couple, MARRIED)
    least = areas.homes(areas.has_relatives & ~is_married)
    most = areas.homes(areas.has_relatives * others)
    yield "relatives", (least <= relatives) & (relatives <= most)
    three = areas.homes(areas.has_generations)
    beside = areas.persons(members.are(*OTHER_GENERATIONS))
    yield "three generations", (three <= areas.persons(own)) & (three <= beside)


def _homeless(records: PersonsAndHouseholds) -> np.ndarray | None:
    """Mask of the persons in households without an occupied unit in their block; None if persons
    have no units.
    """
    if records.person_unit is None or records.unit is None:
        return None
    inside = records.inside
    n = 1 + max(records.person_unit.max(initial=0), records.unit.max(initial=0))
    unit = records.person_unit[inside]
    home = records.household_block * n + records.unit
    return (unit < 0) | ~np.isin(records.person_block[inside] * n + unit, home)


TITLE = "Persons and households that agree"


def agreement_section(sources: Sources, folder: Path, *, with_truth: bool) -> Section:
    """Agreement of persons and households, and changes to the separate releases.

    folder : folder of the one population. with_truth : whether the input may be shown; never if any
    run's input is confidential.
    """
    records = {"apart": read_released(sources), "one population": read_population(folder)}
    truth = true_records(sources) if with_truth else None
    if truth is not None:
        records["truth"] = truth
    found = {
        level: {name: measure_areas(own, digits) for name, own in records.items()}
        for level, digits in GEOLEVELS.items()
    }
    blocks = found["block"]
    whole = {
        name: {one: ratio for one, ratio in own.items() if not one.part}
        for name, own in blocks.items()
    }
    about = (
        "Share of blocks with persons in households or occupied units for which each statement is "
        "true, in percent: in the products' own releases, which were made independently, and in "
        "the one population made of them. M1 and M4 should be 0, M3 and M5 to M8 should be 100. "
        "Seven members represent seven and more, as in published tables, so that M2 and M9 miss "
        "larger households even where all agree."
    )
    details = [
        Details(f"By {level}, with what each is made of", (_table(level, own),))
        for level, own in found.items()
    ]
    made = _count_changes(read_record(folder / SUMMARY_FILE))
    return Section(TITLE, (about, _table("all blocks", whole), *details, *made))


def true_records(sources: Sources) -> PersonsAndHouseholds | None:
    """The records of the input; None if a run no longer has them. They are in no released file;
    callers must have checked that no run's input is confidential.
    """
    runs = (
        (sources.persons, person_levels.PERSONS),
        (sources.units, household_types.HOUSEHOLDS),
    )
    if not all(run.histogram(universe).exists() for run, universe in runs):
        return None
    tables = [_counts(run, universe) for run, universe in runs]
    blocks, (people, homes) = group_by_block(tables)
    persons = np.stack(people.levels(person_levels.universe().schema))
    households = np.stack(homes.levels(household_types.universe().schema))
    return PersonsAndHouseholds(blocks, people.block, persons, homes.block, households)


def _counts(run: RunDirectory, universe: str) -> pa.Table:
    """Geocode, cell and count of all entries of a universe."""
    table = pq.read_table(run.histogram(universe), columns=["block_geocode", "cell", "count"])
    return table.rename_columns(["geocode", "cell", "count"])


def read_population(folder: Path) -> PersonsAndHouseholds:
    """The records of one population, from its two files alone."""
    schemas = (person_levels.universe().schema, household_types.universe().schema)
    people, homes = (
        pq.read_table(folder / name, columns=["geocode", "unit", *further, *schema.attributes])
        for name, further, schema in zip(
            (PERSONS_FILE, UNITS_FILE), ((), ("occupied",)), schemas, strict=True
        )
    )
    homes = homes.filter(pc.field("occupied"))
    every = pc.unique(pa.chunked_array([*people["geocode"].chunks, *homes["geocode"].chunks]))
    blocks = every.take(pc.sort_indices(every))
    of_person, of_home = (_positions(one["geocode"], blocks) for one in (people, homes))
    unit, home = (pc.fill_null(one["unit"], NOBODY).to_numpy() for one in (people, homes))
    persons, households = map(_levels, (people, homes), schemas)
    codes = np.array(blocks.to_pylist(), dtype=str)
    return PersonsAndHouseholds(codes, of_person, persons, of_home, households, unit, home)


def _levels(table: pa.Table, schema: Schema) -> np.ndarray:
    """Level of each row in each attribute `(n_attributes, n)`."""
    labels = {name: pa.array(schema.labels(name), pa.string()) for name in schema.attributes}
    return np.stack([_positions(table[name], known) for name, known in labels.items()])


def _positions(values: pa.ChunkedArray, known: pa.Array) -> np.ndarray:
    """Position of each value among known ones."""
    return pc.index_in(values, value_set=known).to_numpy().astype(np.int64)


def _table(areas: str, found: Mapping[str, Mapping[Measure, Ratio]]) -> Table:
    """A row for each measure of any of the records, a column for each of them."""
    measures = dict.fromkeys(one for own in found.values() for one in own)
    # In the order of their numbers, and in the order of measurement within a number.
    ordered = sorted(measures, key=lambda one: one.number)
    return Table(
        (f"{areas}, %", *found),
        tuple(
            (
                f"{one.number}: {one.part or one.words}",
                *(_percent(own.get(one)) for own in found.values()),
            )
            for one in ordered
        ),
        "one population",
    )


def _percent(ratio: Ratio | None) -> Cell:
    """A ratio in percent, to two digits; less than all is not shown as 100."""
    if ratio is None or (percent := ratio.percent) is None:
        return NONE
    if abs(ratio.number) == ratio.of or not ratio.number:
        return round(percent, 2)
    nearest = round(percent, 2)
    return nearest if abs(nearest) not in (0, 100) else float(f"{percent:.6g}")


def _count_changes(summary: Mapping[str, Any]) -> Iterator[str | Table]:
    """Changes to the separate releases."""
    yield "How many blocks and records differ from the products' own releases:"
    persons = summary["persons_in_households"]
    rows = [(name, summary[f"{name}_changed"], summary[name]) for name in ("blocks", "households")]
    rows += [
        (f"persons: {name}", number, persons) for name, number in summary["persons_changed"].items()
    ]
    yield Table(
        ("changed", "number", "percent"),
        tuple((name, number, _percent(Ratio(number, of))) for name, number, of in rows),
    )
