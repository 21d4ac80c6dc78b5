"""Households whose members fit each other, on the block counts of given tables.

Persons, housing units and vacancy of tables in the Census Edited File layout may be real, while
relationships, ages and sexes are not: imputed ones make couples of three and children older than
their parents. Here every block keeps

- its persons in households by voting age, origin and race, its group quarters with their persons,
- its housing units, occupied and vacant, with the kinds of vacancy,

and the composition of households by role, age and sex is drawn anew, household by household and all
blocks at once: each adult beyond one for every household joins a household of the block, as a
spouse or partner, an own adult child, a parent, a roommate and so on; minors live with parents or
grandparents, rarely with others. Ages follow from who is whose parent or child, so that no
structural zero of the 2020 products has anybody. The population is fictional.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.households import (
    ADULT,
    FEMALE,
    HOUSEHOLDER,
    MALE,
    YOUNGEST_HOUSEHOLDER,
    Members,
    unit_columns,
)
from ...runs.files import read_declared
from ...tables.layouts import RACE_COLUMN
from .generate import GeneratedFiles

_OLDEST = 99
_SHARED = 0.66
"""Share of the households that get a second adult before any gets a third."""
_COUPLE, _MARRIED, _SAME_SEX = 0.72, 0.82, 0.02
"""Chances that a second adult is a spouse or partner, married if so, and of the same sex."""
_CHILD_GAP, _WIDEST_GAP = 16, 44
"""Years from a parent to a child, least and most where the child is a minor."""
_OLDEST_PARENT_OF_MINOR = 58

_TABLES = read_declared(Path(__file__).parent / "presets" / "households.toml")
CHILDREN, GRANDCHILDREN, SIBLINGS, OTHERS = range(4)
"""Relations of the minors of a household to its householder, in the order of the table."""


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons in households, `(n_persons,)` each: block, whether of voting age, origin, race."""

    block: np.ndarray
    is_adult: np.ndarray
    hispanic: np.ndarray
    race: np.ndarray


def draw_households(
    rng: np.random.Generator, persons: Persons, block_of_unit: np.ndarray
) -> Members:
    """Members of households, in the order of `persons`; `block_of_unit` (n_units,) ascending.

    Every unit has a householder, so that a block needs a person for each of its units; where it has
    fewer adults, householders of 15 to 17 are drawn. Persons in a block without units, and blocks
    with more units than persons, raise ValueError.
    """
    n_blocks = 1 + max(persons.block.max(initial=-1), block_of_unit.max(initial=-1))
    n_units = np.bincount(block_of_unit, minlength=n_blocks)
    n_persons = np.bincount(persons.block, minlength=n_blocks)
    if (n_units > n_persons).any():
        raise ValueError("a block has more occupied units than persons in households")
    if ((n_persons > 0) & (n_units == 0)).any():
        raise ValueError("a block has persons in households, and no occupied unit")
    # Neighbours in this order are alike, and become members of one household.
    likeness = persons.race * 2 + persons.hispanic
    order = np.lexsort((rng.random(len(likeness)), likeness, ~persons.is_adult, persons.block))
    first = np.append(0, np.cumsum(n_persons))
    unit_start = np.append(0, np.cumsum(n_units))
    block = persons.block[order]
    rank = np.arange(len(order)) - first[block]
    n_adults = np.bincount(persons.block[persons.is_adult], minlength=n_blocks)
    # Householders and other adults; minors among them where units outnumber adults, one in each.
    n_older = np.maximum(n_adults, n_units)
    is_older = rank < n_older[block]
    older = _with_sizes(rng, block_of_unit, unit_start, n_older - n_units, is_shared=True)
    younger = _with_sizes(rng, block_of_unit, unit_start, n_persons - n_older, is_shared=False)
    unit = np.empty(len(order), dtype=np.int64)
    unit[is_older] = np.repeat(np.arange(len(block_of_unit)), 1 + older)
    unit[~is_older] = np.repeat(np.arange(len(block_of_unit)), younger)
    starts = np.append(0, np.cumsum(1 + older))
    number = np.full(len(order), -1)
    number[is_older] = np.arange(is_older.sum()) - starts[unit[is_older]]
    roles = _roles(rng, unit, number, persons.is_adult[order], len(block_of_unit))
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    relationship, age, sex = (values[back] for values in roles)
    return Members(unit[back], relationship, age, sex, persons.hispanic, persons.race)


def _with_sizes(
    rng: np.random.Generator,
    block_of_unit: np.ndarray,
    unit_start: np.ndarray,
    further: np.ndarray,
    *,
    is_shared: bool,
) -> np.ndarray:
    """Persons of each unit `(n_units,)`, `further` (n_blocks,) of them in the units of a block.

    Where `is_shared`, most units get one before any gets two; else they are drawn with weights, of
    which many are small, as of households without children.
    """
    n_units = len(block_of_unit)
    count = np.zeros(n_units, dtype=np.int64)
    of_block = np.diff(unit_start)
    if is_shared:
        rank = np.empty(n_units, dtype=np.int64)
        shuffled = np.lexsort((rng.random(n_units), block_of_unit))
        rank[shuffled] = np.arange(n_units) - unit_start[block_of_unit]
        once = np.minimum(further, np.ceil(_SHARED * of_block).astype(np.int64))
        count += rank < once[block_of_unit]
        further = further - once
    weight = rng.gamma(2.0 if is_shared else 0.35, size=n_units) + 1e-6
    total = np.append(0.0, np.cumsum(weight))
    block = np.repeat(np.arange(len(further)), further)
    low, high = total[unit_start[block]], total[unit_start[block + 1]]
    chosen = np.searchsorted(total, low + rng.random(len(block)) * (high - low), side="right") - 1
    chosen = np.clip(chosen, unit_start[block], unit_start[block + 1] - 1)
    return count + np.bincount(chosen, minlength=n_units)


def _roles(
    rng: np.random.Generator,
    unit: np.ndarray,
    number: np.ndarray,
    is_adult: np.ndarray,
    n_units: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """RELSHIP, age and sex; `number` counts a unit's older members from 0, and is -1 of others."""
    n = len(unit)
    is_head, is_second = number == 0, number == 1
    has_minor = np.bincount(unit[number < 0], minlength=n_units) > 0
    is_young = np.zeros(n_units, dtype=bool)
    is_young[unit[is_head]] = ~is_adult[is_head]
    shares, without_adults = (
        [kind[name] for kind in _TABLES["minors"]] for name in ("share", "share_without_adults")
    )
    kind = rng.choice(4, size=n_units, p=shares)
    kind = np.where(is_young, rng.choice(4, size=n_units, p=without_adults), kind)
    kind = np.where(has_minor, kind, -1)

    head_age = _householder_ages(rng, kind, is_young)
    head_sex = rng.integers(MALE, FEMALE + 1, n_units)
    is_couple = (rng.random(n_units) < _COUPLE) & ~is_young
    is_married, is_same = rng.random(n_units) < _MARRIED, rng.random(n_units) < _SAME_SEX
    couple = np.where(is_married, 21, 22) + 2 * is_same

    age, sex = np.zeros(n, dtype=np.int64), rng.integers(MALE, FEMALE + 1, n)
    relationship = np.zeros(n, dtype=np.int64)
    relationship[is_head], age[is_head] = HOUSEHOLDER, head_age[unit[is_head]]
    sex[is_head] = head_sex[unit[is_head]]

    pair = is_second & is_couple[unit]
    has_partner = np.zeros(n_units, dtype=bool)
    has_partner[unit[pair]] = True
    relationship[pair] = couple[unit[pair]]
    apart = np.rint(rng.normal(0.0, 4.0, n)).astype(np.int64)
    age[pair] = np.clip(head_age[unit[pair]] + apart[pair], ADULT, _OLDEST)
    sex[pair] = np.where(is_same, head_sex, MALE + FEMALE - head_sex)[unit[pair]]

    minors = number < 0
    relationship[minors], age[minors] = _minors(rng, kind[unit[minors]], head_age[unit[minors]])
    rest = ~(is_head | pair | minors)
    relationship[rest], age[rest] = _further_adults(
        rng, head_age[unit[rest]], has_partner[unit[rest]]
    )
    return relationship, age, sex


def _householder_ages(
    rng: np.random.Generator, kind: np.ndarray, is_young: np.ndarray
) -> np.ndarray:
    """Ages of householders `(n_units,)` by their relation to their minors, -1 for no minors."""
    n = len(kind)
    anybody = np.clip(rng.normal(54, 18, n), ADULT, _OLDEST)
    age = np.select(
        [kind == CHILDREN, kind == GRANDCHILDREN, kind == SIBLINGS],
        [
            np.clip(rng.normal(39, 8, n), ADULT, _OLDEST_PARENT_OF_MINOR),
            np.clip(rng.normal(58, 8, n), 40, 85),
            rng.integers(ADULT, 31, n),
        ],
        anybody,
    ).astype(np.int64)
    return np.where(is_young, rng.integers(YOUNGEST_HOUSEHOLDER, ADULT, n), age)


def _minors(
    rng: np.random.Generator, kind: np.ndarray, head_age: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """RELSHIP and ages of minors, by their relation and their householder's age."""
    n = len(kind)
    relationship, age = np.zeros(n, dtype=np.int64), rng.integers(0, ADULT, n)
    for which, table in enumerate(_TABLES["minors"]):
        own = kind == which
        relationship[own] = rng.choice(table["roles"], size=int(own.sum()), p=table["role_shares"])
    is_child = (relationship >= 25) & (relationship <= 27)
    youngest = np.maximum(0, head_age - _WIDEST_GAP)
    oldest = np.clip(head_age - _CHILD_GAP, youngest, ADULT - 1)
    drawn = youngest + (rng.random(n) * (oldest - youngest + 1)).astype(np.int64)
    return relationship, np.where(is_child, drawn, age)


def _further_adults(
    rng: np.random.Generator, head_age: np.ndarray, has_partner: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """RELSHIP and ages of adults other than the householder and a spouse or partner."""
    n = len(head_age)
    weights = np.array(_TABLES["adults"]["weights"])
    relationship = rng.choice(_TABLES["adults"]["roles"], size=n, p=weights / weights.sum())
    is_child = (relationship >= 25) & (relationship <= 27)
    is_parent = (relationship == 29) | (relationship == 31)
    is_in_law = relationship == 32
    fits = np.ones(n, dtype=bool)
    fits[(is_child | is_in_law) & (head_age < ADULT + _CHILD_GAP)] = False
    fits[is_parent & (head_age > _OLDEST - _CHILD_GAP - 4)] = False
    fits[(relationship == 31) & ~has_partner] = False
    relationship = np.where(fits, relationship, 34)
    younger = np.clip(
        head_age - rng.integers(_CHILD_GAP, 38, n), ADULT, np.maximum(head_age - _CHILD_GAP, ADULT)
    )
    older = np.clip(head_age + rng.integers(_CHILD_GAP + 2, 38, n), 35, _OLDEST)
    beside = np.clip(head_age + rng.integers(-10, 11, n), ADULT, 90)
    ages = np.select(
        [fits & (is_child | is_in_law), fits & is_parent, relationship == 28],
        [younger, older, beside],
        np.clip(rng.normal(36, 14, n), ADULT, 90).astype(np.int64),
    )
    return relationship, ages


def synthesize_households(
    source: Path | str, target: Path | str, *, seed: int = 20
) -> GeneratedFiles:
    """Write tables with the block counts of a folder's, and households that fit together.

    `source` has `persons.parquet`, `units.parquet` and `grfc.txt` in the Census Edited File layout.
    Persons keep origin, race, voting age and block; those in group quarters keep all but ages that
    no one of their type of group quarters may have. Units get tenure and, at the end of their
    columns, the attributes derived from their members. The same arguments give the same tables.
    Raises ValueError as `draw_households`.
    """
    source, target = Path(source), Path(target)
    target.mkdir(parents=True, exist_ok=True)
    files = GeneratedFiles(
        target / "persons.parquet", target / "units.parquet", target / "grfc.txt"
    )
    rng = np.random.default_rng(seed)
    units, persons = (pq.read_table(source / name) for name in ("units.parquet", "persons.parquet"))
    size, code = _numbers(units["FINAL_POP"]), _numbers(units["QGQTYP"])
    keys, block_key = _numbers(units["MAFID"]), units["OIDTB"].to_numpy(zero_copy_only=False)
    _, block = np.unique(block_key.astype(str), return_inverse=True)
    at = np.argsort(keys, kind="stable")
    unit = at[np.searchsorted(keys[at], _numbers(persons["MAFID"]))]

    is_household = code == 0
    occupied = np.flatnonzero(is_household & (size > 0))
    occupied = occupied[np.argsort(block[occupied], kind="stable")]
    inside = np.flatnonzero(is_household[unit])
    age, hispanic, race = (_numbers(persons[name]) for name in ("QAGE", "CENHISP", RACE_COLUMN))
    who = Persons(block[unit[inside]], age[inside] >= ADULT, hispanic[inside], race[inside])
    members = draw_households(rng, who, block[occupied])
    relationship, sex = _numbers(persons["RELSHIP"]), _numbers(persons["QSEX"])
    number = _numbers(persons["CUF_PNC"])
    unit[inside] = occupied[members.unit]
    relationship[inside], age[inside], sex[inside] = members.relationship, members.age, members.sex
    by_unit = np.lexsort((relationship[inside], unit[inside]))
    starts = np.searchsorted(unit[inside][by_unit], unit[inside][by_unit])
    number[inside[by_unit]] = 1 + np.arange(len(inside)) - starts
    age = _ages_in_group_quarters(age, code[unit])

    members = Members(
        *(values[inside] for values in (unit, relationship, age, sex, hispanic, race))
    )
    columns = unit_columns(members, len(keys))
    columns["FINAL_POP"] = np.where(is_household, columns["FINAL_POP"], size)
    columns["TEN"] = _tenures(rng, columns["HHLDRAGE"], columns["CPLT"])
    person_values = {
        "MAFID": keys[unit],
        "CUF_PNC": number,
        "QSEX": sex,
        "QAGE": age,
        "RELSHIP": relationship,
    }
    pq.write_table(_replace_columns(persons, person_values), files.persons, compression="zstd")
    pq.write_table(_replace_columns(units, columns), files.units, compression="zstd")
    shutil.copyfile(source / "grfc.txt", files.geography)
    return files


def _ages_in_group_quarters(age: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Ages; in group quarters, replaced by the nearest age that the type may have."""
    age = age.copy()
    for kind in _TABLES["group_quarters"]:
        own = np.isin(code, kind["types"])
        age[own] = np.clip(age[own], *kind["ages"])
    return age


def _tenures(rng: np.random.Generator, head_age: np.ndarray, couple: np.ndarray) -> np.ndarray:
    """TEN of every unit: 1 mortgage, 2 owned clear, 3 rented, 4 no payment; 0 without members.

    Couples own more often, and older householders without a mortgage.
    """
    n = len(head_age)
    is_pair = (couple >= 1) & (couple <= 4)
    owns = rng.random(n) < np.clip(0.15 + 0.009 * head_age, 0.0, 0.75) + 0.15 * is_pair
    is_clear = rng.random(n) < np.clip((head_age - 35) / 55, 0.05, 0.85)
    pays = rng.random(n) < 0.96
    tenure = np.where(owns, np.where(is_clear, 2, 1), np.where(pays, 3, 4))
    return np.where(head_age > 0, tenure, 0)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """A column of whole numbers, or of texts that spell them; blanks are 0."""
    values = column.combine_chunks()
    if pa.types.is_integer(values.type):
        return values.to_numpy(zero_copy_only=False).astype(np.int64)
    encoded = values.dictionary_encode()
    numbers = [int((text or "").strip() or 0) for text in encoded.dictionary.to_pylist()]
    return np.array(numbers, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


def _replace_columns(table: pa.Table, columns: dict[str, np.ndarray]) -> pa.Table:
    """A table with some columns of numbers replaced, in the type that they had, or appended."""
    for name, values in columns.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array(values))
            continue
        place, field = table.schema.get_field_index(name), table.schema.field(name)
        as_text = not pa.types.is_integer(field.type)
        array = pa.array(values.astype(str) if as_text else values).cast(field.type)
        table = table.set_column(place, field, array)
    return table
