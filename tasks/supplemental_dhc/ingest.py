"""Ingest of the supplemental tables: public areas, and counts of people and households by area.

An area is all blocks in the same regions of every level. The input is read, checked, and turned
into counts by area in the run directory.

Memory keeps for persons the values that the cells need, and for units the columns that the Census
Edited File has of households. Every count reads them through `cells_of` and `truncate_members`.

Households of a released population, in which every person in a household has the number of a
unit: read from the files `population_persons` and `population_units`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ...geography.hierarchy import ranks_within
from ...validation.outcome import Outcome
from ...validation.rules import TENURE_RULE
from ..census.cef_2020 import CENSUS, UNITS
from ..census.cef_tables import UNIT_KEY, CefTables, read_blocks
from ..census.census import preset_census
from ..census.census_input import CensusInput
from ..census.counting import in_areas
from ..census.histograms import HistogramSum, read_histogram, write_histogram
from ..census.households import ADULT, HOUSEHOLDER, OWN_CHILDREN, RELATIVES, Members, unit_columns
from ..census.invariants import GEOCODE_DIGITS, codes_of_level
from ..census.members import completed_units, household_columns, read_units
from ..census.queries import incidence
from ..ledger.identity import store_identity
from ..ledger.plan import UniversePlan
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.settings_files import frozen_settings
from ..runs.stamps import write_parquet
from ..tables.columns import canonical_keys, temporary_files_in, temporary_folder
from ..tables.findings import InputCheck, UnreadableInput, accepted_input, refuse_unreadable
from ..tables.layouts import RACE_COLUMN
from ..tables.sources import InputFile
from ..tables.value_tallies import ValueTally
from .plan import (
    COLUMNS,
    EVERYBODY,
    ITERATIONS,
    MEASURES,
    N_COLUMNS,
    ORIGINS,
    PERSONS,
    RACES,
    UNIVERSE,
    areas_file,
    make_plan,
)
from .settings import SupplementalDhcSettings

NOWHERE = -1
"""The cell of a record outside the universe, and the iteration of one that is in none."""

FAMILY = 3
"""The last HHT of families, 1 married couples, 2 and 3 others; from 4 on households of none."""
SPOUSES = (21, 23)
GRANDCHILD = 30
WITH_OWN_CHILDREN = (1, 3, 10, 6)
"""HHT2 of families with own children under 18: married, cohabiting, male, female householder."""
AGES_OF_CHILDREN = (4, 6, 12, 18)
"""Ages at which a child leaves the groups under 4, 4 and 5, 6 to 11, 12 to 17."""
RENTERS = 3
"""The first TEN of renters; before are owners, with a mortgage and without."""
HISPANIC, WHITE, TWO_OR_MORE = 2, 1, 7
"""CENHISP and HHSPAN of Hispanics; the first race, and the first combination of several races."""
TENURES = 4

TENURE = "TEN"
UNIT_COLUMNS = (TENURE, "HHT", "HHT2", "CPLT", "HHRACE", "HHSPAN")
"""Columns of units, in the order of `Households`."""


@dataclass(frozen=True, eq=False)
class Households:
    """The columns of units, `(n_units,)` each, int; 0 throughout for units without members.

    tenure, kind, detailed_kind, couple : TEN, HHT, HHT2 and CPLT.
    race, hispanic : HHRACE and HHSPAN.
    key : a hash of the identifier, uint64.
    """

    tenure: np.ndarray
    kind: np.ndarray
    detailed_kind: np.ndarray
    couple: np.ndarray
    race: np.ndarray
    hispanic: np.ndarray
    key: np.ndarray


def read_households(units: Sequence[InputFile]) -> Households:
    """The units in the order of their files.

    Tables must have passed the rules on census tables, and units must have the columns computed
    from their members (`tasks.census.members`). Raises UnreadableInput.
    """
    keys, _, values_of = read_units(units, UNIT_COLUMNS, UNIT_KEY)
    hashes = [key_hashes(canonical_keys(part).to_pylist()) for part in keys.chunks()]
    columns = [*values_of.values(), np.concatenate(hashes)]
    return Households(*columns)


def key_hashes(keys: Sequence[object]) -> np.ndarray:
    """A hash of 64 bits of every identifier, which depends on nothing else, uint64."""
    texts = np.array([str(key) for key in keys], dtype=object)
    return pd.util.hash_array(texts, categorize=False)


def orders(households: Households, members: Members) -> np.ndarray:
    """A number of every member, by which the members of a household are put in order, uint64.

    It is a hash of the unit's identifier and of all that is known of the member, independent of
    other members; members with the same number have the same counts.
    """
    packed = np.zeros(len(members.age), dtype=np.uint64)
    for column in (
        members.relationship,
        members.age,
        members.sex,
        members.hispanic,
        members.race,
    ):
        packed = packed * np.uint64(1 << 10) + column.astype(np.uint64)
    return _mix_bits(households.key[members.unit] ^ _mix_bits(packed))


def _mix_bits(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, a one-to-one function of 64 bits."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def truncate_members(unit: np.ndarray, order: np.ndarray, tau: int) -> np.ndarray:
    """The persons that stay if of every unit only the first tau in order do, `(n_persons,)` bool.

    >>> order = np.array([5, 3, 4, 9], dtype=np.uint64)
    >>> truncate_members(np.array([0, 0, 0, 1]), order, 2).tolist()
    [False, True, True, True]
    """
    by_unit = np.lexsort((order, unit))
    stays = np.empty(len(unit), dtype=bool)
    stays[by_unit] = ranks_within(unit[by_unit]) < tau
    return stays


def cells_of(measure: str, households: Households, members: Members) -> np.ndarray:
    """The cell of every person, or of every unit for a number of households; `NOWHERE` outside."""
    is_household = households.kind > 0
    is_family = is_household & (households.kind <= FAMILY)
    if measure == "PH1_denom":
        return np.where(is_household, 0, NOWHERE)
    if measure == "PH5_denom":
        return np.where(is_family, 0, NOWHERE)
    if measure == "PH8_denom":
        return np.where(is_household, (households.tenure >= RENTERS).astype(int), NOWHERE)
    unit, age = members.unit, members.age
    is_adult = (age >= ADULT).astype(int)
    is_own = members.are(*OWN_CHILDREN) & (age < ADULT)
    family = pd.Index(WITH_OWN_CHILDREN).get_indexer(households.detailed_kind[unit])
    if measure == "PH1_num":
        return is_adult
    if measure == "PH2":
        return _couples(households)[unit]
    if measure == "PH3":
        cell = np.select(
            [members.are(*OWN_CHILDREN), members.are(GRANDCHILD), members.are(28, RELATIVES[1])],
            [1 + family, 5, 6],
            0,
        )
        return np.where(age < ADULT, cell, NOWHERE)
    if measure == "PH4":
        is_related = members.are(HOUSEHOLDER) | members.are(*RELATIVES)
        is_related |= np.isin(members.relationship, SPOUSES)
        return np.where(is_related & is_family[unit], is_adult, NOWHERE)
    if measure == "PH6":
        group = np.searchsorted(AGES_OF_CHILDREN, age, side="right")
        return np.where(is_own & (family >= 0), 4 * family + group, NOWHERE)
    if measure == "PH7":
        return np.minimum(households.tenure[unit], RENTERS) - 1
    raise ValueError(f"unknown measure {measure!r}")


def _couples(households: Households) -> np.ndarray:
    """Cells of PH2 by unit: couples by CPLT, else householders by sex, alone or with others."""
    kind, couple = households.detailed_kind, households.couple
    is_couple = (kind >= 1) & (kind <= 4)
    single = np.select([kind == 9, kind >= 10, kind == 5], [4, 5, 6], 7)
    return np.where(is_couple, couple - 1, single)


def iteration_of(key: str, race: np.ndarray, hispanic: np.ndarray) -> np.ndarray:
    """Position of every record's iteration among those of a key; `NOWHERE` for a record in no
    iteration.

    >>> iteration_of("A-G", np.array([1, 9]), np.array([1, 1])).tolist()
    [0, 6]
    >>> iteration_of("H,I", np.array([1, 1, 2]), np.array([2, 1, 1])).tolist()
    [0, 1, -1]
    """
    if key == EVERYBODY:
        return np.zeros(len(race), dtype=np.int64)
    if key == RACES:
        return np.minimum(race, TWO_OR_MORE) - 1
    if key == ORIGINS:
        is_hispanic = hispanic == HISPANIC
        return np.select([is_hispanic, race == WHITE], [0, 1], NOWHERE)
    raise ValueError(f"unknown iterations {key!r}; there are {', '.join(ITERATIONS)}")


def count_people(
    households: Households,
    members: Members,
    area_of_unit: np.ndarray,
    taus: Mapping[str, int],
    n_areas: int,
) -> sparse.csr_array:
    """True counts `(n_areas, N_COLUMNS)`, after truncation.

    Args:
        households, members: of `read_households`.
        area_of_unit: area of every unit, `(n_units,)`.
        taus: of every measure of persons, the most that count of a household.
    """
    order = orders(households, members)
    total = HistogramSum(n_areas, N_COLUMNS)
    for name in MEASURES:
        for unit, column in columns_of_records(name, households, members, order, taus):
            total.add(area_of_unit[unit], column, np.ones(len(unit), dtype=np.int64))
    return total.total()


def columns_of_records(
    name: str, households: Households, members: Members, order: np.ndarray, taus: Mapping[str, int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Unit and column of all that a measure counts, `(n,)` each, by key of its iterations.

    Among a household's members in the universe the first tau in `order` stay, before anything else.
    """
    measure = MEASURES[name]
    cell = cells_of(name, households, members)
    record = np.flatnonzero(cell >= 0)
    unit, race, hispanic = record, households.race, households.hispanic
    if measure.counted == PERSONS:
        record = record[truncate_members(members.unit[record], order[record], taus[name])]
        unit = members.unit[record]
        race, hispanic = race[unit], hispanic[unit]
        if measure.is_by_person:
            race, hispanic = members.race[record], members.hispanic[record]
    else:
        race, hispanic = race[unit], hispanic[unit]
    for key in measure.iterations:
        iteration = iteration_of(key, race, hispanic)
        is_in = iteration >= 0
        first = COLUMNS[name, key].start
        yield unit[is_in], first + iteration[is_in] * measure.n_cells + cell[record[is_in]]


PERSONS_FILE, UNITS_FILE = "population_persons.parquet", "population_units.parquet"
LABELLED = "dhc_persons_2020"
"""The census whose labels persons have."""
RELATED, RACE = "relgq", RACE_COLUMN.lower()
TENURE_CODES = {
    "owned with a mortgage": 1,
    "owned free and clear": 2,
    "rented": 3,
    "rented or without payment": 3,
    "occupied without payment": 4,
}
"""TEN by the labels of tenure."""
OTHERS = 36
"""The last RELSHIP in households."""


def read_population(folder: Path) -> tuple[Households, Members, pd.Series]:
    """Occupied units, their members, and the blocks of these units by their geocodes.

    Attributes of a household follow from its members; tenure is the unit's. Raises InputRefused for
    files that are not there, that have other labels, or whose members and units do not fit.
    """
    units = _read(folder / UNITS_FILE, ("geocode", "unit", "tenure", "size"))
    persons = _read(
        folder / PERSONS_FILE, ("geocode", "unit", "relationship", "sex", "age", "hispanic", RACE)
    )
    units = units[units["tenure"].notna()].reset_index(drop=True)
    persons = persons[persons["unit"].notna()]
    index = pd.MultiIndex.from_arrays([units["geocode"], units["unit"].astype(np.int64)])
    keys = pd.MultiIndex.from_arrays([persons["geocode"], persons["unit"].astype(np.int64)])
    unit = index.get_indexer(keys) if index.is_unique else np.array([-1])
    size = np.bincount(unit[unit >= 0], minlength=len(units))
    if (unit < 0).any() or not np.array_equal(size, units["size"].to_numpy()):
        raise InputRefused(
            f"{folder}: persons and occupied units do not fit; name the release of a run whose "
            "persons and households agree."
        )
    codes = person_codes()
    found = [
        _code_labels(persons[name], codes[name], folder / PERSONS_FILE)
        for name in ("relationship", "age", "sex", "hispanic", RACE)
    ]
    members = Members(unit, *found)
    made = unit_columns(members, len(units))
    households = Households(
        _code_labels(units["tenure"], TENURE_CODES, folder / UNITS_FILE),
        kind=made["HHT"],
        detailed_kind=made["HHT2"],
        couple=made["CPLT"],
        race=made["HHRACE"],
        hispanic=made["HHSPAN"],
        key=np.arange(len(units), dtype=np.uint64),
    )
    return households, members, units["geocode"]


def person_codes() -> Mapping[str, Mapping[str, int]]:
    """The codes of the Census Edited File by label, of everything that households need."""
    schema = preset_census(LABELLED).schema(PERSONS)
    # A householder alone and one who is not are the first two levels.
    related = schema.labels(RELATED)
    relationships = {related[0]: HOUSEHOLDER, "householder": HOUSEHOLDER}
    last = OTHERS - HOUSEHOLDER + 1
    numbered = enumerate(related[1 : last + 1], start=HOUSEHOLDER)
    relationships |= {label: code for code, label in numbered}
    found = {"relationship": relationships, "age": {x: int(x) for x in schema.labels("age")}}
    for name in ("sex", "hispanic", RACE):
        found[name] = {label: n for n, label in enumerate(schema.labels(name), start=1)}
    return found


def _code_labels(labels: pd.Series, codes: Mapping[str, int], file: Path) -> np.ndarray:
    found = labels.astype(str).map(codes)
    if found.isna().any():
        raise InputRefused(f"{file}: {labels.name} has labels that are not of the 2020 Census.")
    return found.to_numpy(dtype=np.int64)


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        return pq.read_table(path, columns=list(columns)).to_pandas()
    except FileNotFoundError:
        raise InputRefused(f"{path}: there is no such file; name a release's folder.") from None
    except (pa.ArrowException, OSError):
        raise InputRefused(f"{path}: this is no file of a population.") from None


@dataclass(frozen=True, eq=False)
class Areas:
    """The regions of areas, by level in the order of the settings.

    regions : codes of the regions of every level, ascending.
    region_of_area : by level, the position of every area's region, `(n_areas,)`; -1 for
        none.
    """

    regions: dict[str, np.ndarray]
    region_of_area: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.region_of_area.values())))

    @property
    def names(self) -> np.ndarray:
        """Names of the areas in files, ascending."""
        return np.array([f"{number:08d}" for number in range(len(self))], dtype=object)

    @property
    def n_regions(self) -> dict[str, int]:
        """The number of regions of every level."""
        return {name: len(own) for name, own in self.regions.items()}

    def summed(self, level: str, counts: np.ndarray) -> np.ndarray:
        """Sum counts to the regions of a level `(n_regions, n)`, from those of areas `(n_areas,
        n)`."""
        return incidence(self.region_of_area[level], len(self.regions[level])) @ counts


def areas_of(
    geography: pd.DataFrame, levels: Sequence[str], file: str = "geography"
) -> tuple[Areas, np.ndarray]:
    """The areas of a geography frame, and the area of every block.

    Codes of a column that occur in several states are made distinct by the state's code and a
    hyphen before them. Raises InputRefused as `codes_of_level`.
    """
    state = codes_of_level(geography, "State")
    columns: dict[str, pd.Series] = {}
    for name in levels:
        code = codes_of_level(geography, name, file)
        if name not in GEOCODE_DIGITS:
            is_blank = geography[name].isna() | (code.str.strip() == "")
            states = pd.DataFrame({"code": code, "state": state})[~is_blank].drop_duplicates()
            if states["code"].duplicated().any():
                code = state + "-" + code
            code = code.mask(is_blank, None)
        columns[name] = code
    frame = pd.DataFrame(columns).astype(object).fillna("")
    area = frame.groupby(list(levels)).ngroup().to_numpy(np.int64)
    distinct = frame.drop_duplicates().sort_values(list(levels))
    return areas_of_rows(distinct.mask(distinct == "", None)), area


def write_areas(path: Path, areas: Areas) -> None:
    """Write one row an area, with its regions by level; null for none."""
    columns = {
        name: pa.array([*areas.regions[name], None], pa.string()).take(
            pa.array(region % (len(areas.regions[name]) + 1))
        )
        for name, region in areas.region_of_area.items()
    }
    write_parquet(path, pa.table(columns))


def areas_of_rows(distinct: pd.DataFrame) -> Areas:
    """Read the areas of one row an area, with its regions by level; blank for none."""
    regions, of_area = {}, {}
    for name in distinct:
        # Areas in no region have the code -1.
        codes, found = pd.factorize(distinct[name], sort=True)
        regions[str(name)] = np.asarray(found, dtype=object)
        of_area[str(name)] = codes.astype(np.int64)
    return Areas(regions, of_area)


def read_areas(run: RunDirectory) -> Areas:
    """The areas of a run."""
    return areas_of_rows(pq.read_table(areas_file(run)).to_pandas().astype(object))


def read_plan(run: RunDirectory) -> UniversePlan:
    """The plan of a run, by its settings and areas."""
    return plan_of(frozen_settings(SupplementalDhcSettings, run.settings), read_areas(run))


def plan_of(settings: SupplementalDhcSettings, areas: Areas) -> UniversePlan:
    """The plan by settings and areas."""
    return make_plan(
        settings.rhos, settings.mechanism.taus, areas.n_regions, infinite=settings.privacy.infinite
    )


def true_counts(run: RunDirectory, areas: Areas, level: str) -> np.ndarray:
    """Confidential counts `(n_regions, N_COLUMNS)` of the regions of a level, after truncation."""
    found = read_histogram(run.histogram(UNIVERSE), areas.names, n_cells=N_COLUMNS)
    return areas.summed(level, found.toarray())


MEMBERS_AGREE = "households_and_members_agree"
COMPLETED = "units_with_members.parquet"


@dataclass(frozen=True)
class SupplementalInput:
    """The input of a run: areas, confidential counts of them, and the census tables."""

    areas: Areas
    counts: sparse.csr_array
    census: CensusInput


def check_households(settings: SupplementalDhcSettings) -> InputCheck[SupplementalInput]:
    """Read the census tables, and check them against every rule.

    Columns of units that follow from the members are made where a table lacks them, in a file that
    is removed at the end; where present, they must agree with the members.
    """
    tables = CefTables.of(CENSUS, {"units": UNITS}, settings.input.paths())
    check = tables.check()
    if check.result is None:
        return InputCheck(check.outcomes, check.findings, None, check.files)
    result, files = check.result, tables.files
    areas, area_of_block = areas_of(
        result.geography, settings.geography.levels, files["geography"][0].name
    )
    with temporary_folder() as folder:
        target = Path(folder) / COMPLETED
        try:
            found = completed_units(files["units"], files["persons"], UNIT_KEY, target)
            outcomes = (*check.outcomes, Outcome(MEMBERS_AGREE, "units", not found.findings))
            if found.findings:
                return InputCheck(outcomes, found.findings, None, check.files)
            households = read_households(found.units)
            block, n_blocks = result.referred["persons"].area, len(result.geography)
            raw = household_columns(found.units, (TENURE,), block, n_blocks)
            raw += [*result.raw["persons"], *in_areas(found.raw.columns(), block, n_blocks)]
        except UnreadableInput as error:
            return InputCheck(check.outcomes, (error.finding,), None, check.files)
    tally = ValueTally()
    is_known = (households.tenure >= 1) & (households.tenure <= TENURES)
    tally.count(TENURE_RULE, int(((households.kind > 0) & ~is_known).sum()))
    area = area_of_block[block]

    def accept() -> SupplementalInput:
        taus = settings.mechanism.taus
        counts = count_people(households, found.members, area, taus, len(areas))
        return SupplementalInput(areas, counts, replace(result, raw={"persons": raw}))

    judged = tally.checked(tally.rules, files, outcomes, accept)
    return replace(judged, files=check.files)


def ingest_households(run: RunDirectory, settings: SupplementalDhcSettings) -> None:
    """Write the public areas and the confidential counts of a run.

    The areas come last: where they are, all is. Raises InputRefused for input that breaks a rule;
    its counts are then in `confidential/findings.json`, and for input that is not confidential in
    the message too.
    """
    with temporary_files_in(run.confidential):
        check = check_households(settings)
    accepted = accepted_input(run, settings, check)
    store_identity(run, settings, accepted.census.digests)
    write_histogram(run.histogram(UNIVERSE), accepted.counts, accepted.areas.names)
    write_areas(areas_file(run), accepted.areas)


def public_areas(settings: SupplementalDhcSettings) -> Areas:
    """The areas alone, from the geography table; raises InputRefused."""
    path = settings.input.geography
    name = path.rpartition("/")[2]
    with refuse_unreadable():
        blocks = read_blocks(path)
    return areas_of(blocks, settings.geography.levels, name)[0]
