"""How far persons and households contradict each other, area by area, and the section of a report.

Records of separate releases, of one population and, of input that is not confidential, of the truth
are measured alike, from the records alone. A household is described by its declared type, so that
seven members represent seven and more, as in published tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
from ...census.queries import Schema
from ...pages.document import NONE, Cell, Section, Table
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


@dataclass(frozen=True)
class Ratio:
    """A number of areas or persons, and the number that it is a share of."""

    number: int
    of: int


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


def measure_areas(records: PersonsAndHouseholds, digits: int) -> dict[str, Ratio]:
    """All measures of the areas given by the first digits of a block's code, by their number and
    the statement true of the areas that they count.

    Shares are of areas with persons in households or occupied units; of householders' races and
    origins, of areas with occupied units. The last two are differences in percent of the persons in
    households. Which units persons live in is measured where they have units.
    """
    areas = _Areas(records, digits)
    everybody = areas.persons(np.ones(len(areas.of_person), dtype=bool))
    occupied = areas.homes(np.ones(len(areas.of_home)))
    is_any = (everybody > 0) | (occupied > 0)
    sizes = areas.homes(areas.size)

    def share(so: np.ndarray, among: np.ndarray = is_any) -> Ratio:
        return Ratio(int((so & among).sum()), int(among.sum()))

    found = {
        "M1: occupied units and nobody, or persons and no occupied unit": share(
            (everybody > 0) != (occupied > 0)
        ),
        "M2: as many persons as the sizes of households add up to": share(everybody == sizes),
        "M3: as many persons as sizes allow, the open one included": share(
            (sizes <= everybody) & (everybody <= areas.homes(areas.most))
        ),
        "M4: a householder of a race or origin of which nobody is": share(
            _lack_race_or_origin(areas), occupied > 0
        ),
        "M5: as many householders of each kind as households": share(_equal_householders(areas)),
        "M6: as many spouses and partners of each kind as couples": share(_equal_couples(areas)),
        "M7: persons for all that households say of members": share(
            np.logical_and.reduce(list(_presence(areas)))
        ),
    }
    if (homeless := _homeless(records)) is not None:
        is_met = areas.persons(homeless) == 0
        found["M8: an occupied unit of the block for every person"] = share(is_met)
    difference = everybody - sizes
    for name, total in (("gross", abs(difference)), ("net", difference)):
        measure = f"M9: {name} difference of persons and sizes, of the persons"
        found[measure] = Ratio(int(total.sum()), int(everybody.sum()))
    return found


def _lack_race_or_origin(areas: _Areas) -> np.ndarray:
    """Whether an area has a householder of a race or origin of which nobody there is."""
    lacking = np.zeros(areas.n, dtype=bool)
    for axis, of_person in (
        (household_types.RACE, head_races()[areas.members.race]),
        (household_types.ORIGIN, areas.members.hispanic - 1),
    ):
        for level in np.unique(areas.levels[axis]):
            there = areas.homes(areas.levels[axis] == level) > 0
            lacking |= there & (areas.persons(of_person == level) == 0)
    return lacking


def _equal_householders(areas: _Areas) -> np.ndarray:
    """Whether householders are as many as households by all attributes common to both at once."""
    members, levels = areas.members, areas.levels
    person, home = np.zeros_like(members.age), np.zeros_like(areas.size)
    for of_person, of_home in (
        (members.sex - MALE, levels[household_types.SEX]),
        # From 1 on: persons below the first age have no band.
        (
            np.searchsorted(FIRST_AGES, members.age, side="right"),
            levels[household_types.AGE] + 1,
        ),
        (members.hispanic - 1, levels[household_types.ORIGIN]),
        (head_races()[members.race], levels[household_types.RACE]),
        (areas.is_alone.astype(int), (areas.size == 1).astype(int)),
    ):
        n_levels = 1 + max(of_person.max(initial=0), of_home.max(initial=0))
        person, home = person * n_levels + of_person, home * n_levels + of_home
    every = np.ones(len(areas.of_home), dtype=bool)
    return areas.are_equal(members.are(HOUSEHOLDER), person, every, home)


def _equal_couples(areas: _Areas) -> np.ndarray:
    """Whether spouses and partners by their own sex are as many as couples by the householder's."""
    members = areas.members
    role = ROLE_OF_RELATIONSHIP[members.relationship - FIRST_RELATIONSHIP]
    head = areas.levels[household_types.SEX]
    is_same = np.isin(areas.couple, SAME_SEX)
    sex = np.where(is_same, head, FEMALE - MALE - head)
    person = (role - PARTNERS[0]) * 2 + members.sex - MALE
    is_partner, has_partner = np.isin(role, PARTNERS), areas.couple != NO_COUPLE
    return areas.are_equal(is_partner, person, has_partner, areas.couple * 2 + sex)


def _presence(areas: _Areas) -> Iterator[np.ndarray]:
    """Whether there are at least as many persons of each kind as households need, and no more than
    they can have: own children of each age, minors, older persons, relatives and generations.
    """
    members, age = areas.members, areas.members.age
    own, child = members.are(*OWN_CHILDREN), members.are(*CHILDREN)
    # Members other than the householder and the householder's partner.
    others = areas.most - 1 - (areas.couple != NO_COUPLE)
    has_both = areas.own[0] & areas.own[1]
    for of_age, has in zip((age < SCHOOL, (age >= SCHOOL) & (age < ADULT)), areas.own, strict=True):
        there = areas.persons(own & of_age)
        yield (areas.homes(has) <= there) & (there <= areas.homes(has * (others - has_both)))
    minors = areas.persons(age < ADULT)
    with_minors = areas.homes(areas.has_minors)
    needed = with_minors + areas.homes(areas.children[0] & areas.children[1])
    yield (needed <= minors) & ((minors == 0) | (with_minors > 0))
    of_couples = (age >= YOUNGEST_HOUSEHOLDER) & (age < ADULT) & ~child
    childless = areas.has_minors & ~(areas.children[0] | areas.children[1])
    yield areas.homes(childless) <= areas.persons(of_couples)
    heads = members.are(HOUSEHOLDER)
    for level, cut in enumerate(ELDERLY_AGES, start=1):
        has = areas.levels[household_types.ELDERLY] >= level
        is_younger = areas.levels[household_types.AGE] < FIRST_AGES.index(cut)
        there = areas.persons(~heads & (age >= cut))
        least, most = areas.homes(has & is_younger), areas.homes(has * (areas.most - 1))
        yield (least <= there) & (there <= most)
    relatives = areas.persons(members.are(*RELATIVES))
    is_married = np.isin(areas.couple, MARRIED)
    least = areas.homes(areas.has_relatives & ~is_married)
    yield (least <= relatives) & (relatives <= areas.homes(areas.has_relatives * others))
    three = areas.homes(areas.has_generations)
    beside = areas.persons(members.are(*OTHER_GENERATIONS))
    yield (three <= areas.persons(own)) & (three <= beside)


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
    """Agreement of persons and households, at every geolevel.

    folder : folder of the one population. with_truth : whether the input may be shown; never if any
    run's input is confidential.
    """
    records = {"apart": read_released(sources), "one population": read_population(folder)}
    if with_truth and (truth := true_records(sources)) is not None:
        records["truth"] = truth
    about = (
        "Share of areas with persons in households or occupied units for which each statement is "
        "true, in percent: in the products' own releases, which were made independently, and in "
        "the one population made of them. M1 and M4 should be 0, M3 and M5 to M8 should be 100. "
        "Seven members represent seven and more, as in published tables, so that M2 and M9 miss "
        f"larger households even where all agree. {SUMMARY_FILE} has how many records differ from "
        "the products' own releases."
    )
    tables = [
        _table(level, {name: measure_areas(own, digits) for name, own in records.items()})
        for level, digits in GEOLEVELS.items()
    ]
    return Section(TITLE, (about, *tables))


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
    columns = ["block_geocode", "cell", "count"]
    tables = [
        pq.read_table(run.histogram(universe), columns=columns).rename_columns(
            ["geocode", "cell", "count"]
        )
        for run, universe in runs
    ]
    blocks, (people, homes) = group_by_block(tables)
    persons = np.stack(people.levels(person_levels.universe().schema))
    households = np.stack(homes.levels(household_types.universe().schema))
    return PersonsAndHouseholds(blocks, people.block, persons, homes.block, households)


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


def _table(geolevel: str, found: Mapping[str, Mapping[str, Ratio]]) -> Table:
    """A row for each measure of any of the records, by number; a column for each of them."""
    measures = sorted({one for own in found.values() for one in own})
    rows = ((one, *(_percent(own.get(one)) for own in found.values())) for one in measures)
    return Table((f"{geolevel}, %", *found), tuple(rows), "one population")


def _percent(ratio: Ratio | None) -> Cell:
    """A ratio in percent, to two digits; less than all is not shown as 100."""
    if ratio is None or not ratio.of:
        return NONE
    percent = 100 * ratio.number / ratio.of
    nearest = round(percent, 2)
    is_hidden = nearest != percent and abs(nearest) in (0, 100)
    return float(f"{percent:.6g}") if is_hidden else nearest
