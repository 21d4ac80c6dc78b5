"""Whether persons and units are one population, from the rows of its two files alone.

Every attribute of a unit is recomputed from its members, with code of our own: nothing is shared
with the code that made the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from .outcome import Failures, Outcome
from .run_files import read_table, unusable_files_fail

SUBJECT = "population"
_PARTNERS = {
    "opposite-sex spouse": "married opposite",
    "same-sex spouse": "married same",
    "opposite-sex unmarried partner": "cohabiting opposite",
    "same-sex unmarried partner": "cohabiting same",
}
_OWN = ("biological child", "adopted child", "stepchild")
_GENERATIONS = ("parent", "grandchild", "parent-in-law")
_RELATIVES = (*_OWN, *_GENERATIONS, "sibling", "child-in-law", "other relative")
_OTHERS = ("roommate", "foster child", "other nonrelative")
_HOUSEHOLDER = "householder"
_SEVERAL_RACES = "two or more races"
_ELDERLY = {
    0: "no one 60 and over",
    60: "someone 60 to 64",
    65: "someone 65 to 74",
    75: "someone 75 and over",
}
"""Labels of the oldest member of a household, by the first age of each."""
_AGES = np.array(["none", "under 6", "6 to 17", "of both ages"], dtype=object)
"""Ages of children, by 1 for some under 6 plus 2 for some from 6 to 17."""
_SIZES = np.array(["", *"123456", "7+"], dtype=object)
"""Sizes of households, the last open."""


@dataclass(frozen=True)
class ReleasedCounts:
    """Rows of a release with which a file of the population must agree in number, area by area.

    file : the release's microdata.
    area : its columns that spell a block, joined.
    codes : for each further column of it, the corresponding column of the population, and the code
        of each of its labels.
    """

    file: Path
    area: Sequence[str]
    codes: Mapping[str, tuple[str, Mapping[str, str]]]


@dataclass(frozen=True)
class ExpectedPopulation:
    """The files, and what they must contain.

    race : the column of the races of persons.
    person_zeros, unit_zeros : impossible rows, as labels by column.
    persons_kept, units_kept : releases whose counts must be those of the population.
    """

    persons: Path
    units: Path
    race: str
    person_zeros: Sequence[Mapping[str, Sequence[str]]]
    unit_zeros: Sequence[Mapping[str, Sequence[str]]]
    persons_kept: Sequence[ReleasedCounts]
    units_kept: Sequence[ReleasedCounts]


def check_population(expected: ExpectedPopulation) -> tuple[Outcome, ...]:
    """All checks of one population."""
    whole, derived, zeros, kept = Failures(), Failures(), Failures(), Failures()
    n_units = n_persons = 0
    with unusable_files_fail(whole, derived, zeros, kept):
        persons, units = _read(expected.persons), _read(expected.units)
        n_persons, n_units = len(persons), len(units)
        _check_whole(persons, units, whole)
        if not whole.count:
            _check_derived(persons.rename(columns={expected.race: "race"}), units, derived)
        else:
            derived.add("households are not whole, so that their attributes cannot be recomputed")
        _check_zeros(persons, expected.person_zeros, expected.persons.name, zeros)
        _check_zeros(units, expected.unit_zeros, expected.units.name, zeros)
        for table, released in ((persons, expected.persons_kept), (units, expected.units_kept)):
            for one in released:
                _check_kept(table, one, kept)
    every = f"{n_persons:,} persons and {n_units:,} units"
    return (
        whole.outcome("every_person_has_a_home", SUBJECT, f"{every} fit each other"),
        derived.outcome("households_are_what_members_tell", SUBJECT, f"{every} tell the same"),
        zeros.outcome("no_impossible_households", SUBJECT, "nothing impossible is released"),
        kept.outcome("redistricting_counts_are_kept", SUBJECT, "counts of blocks are the same"),
    )


def _read(path: Path) -> pd.DataFrame:
    """The rows of a file, texts as categories."""
    return read_table(path, as_dictionary=pq.read_schema(path).names).to_pandas()


def _check_whole(persons: pd.DataFrame, units: pd.DataFrame, failures: Failures) -> None:
    """Sizes are numbers of members, each household has one householder, all in one block."""
    state = units["geocode"].astype(str).str[:2]
    failures.add_each(
        pd.DataFrame({"state": state, "unit": units["unit"]}).duplicated().to_numpy(),
        lambda i: f"unit {units['unit'].iloc[i]} is twice in state {state.iloc[i]}",
    )
    at_home = persons[persons["unit"].notna()]
    failures.add_each(
        (persons["relationship"].notna() != persons["unit"].notna()).to_numpy(),
        lambda i: f"row {i} of persons has a unit and no relationship, or the other way round",
    )
    known = (_HOUSEHOLDER, *_PARTNERS, *_RELATIVES, *_OTHERS)
    failures.add_each(
        ~at_home["relationship"].isin(known).to_numpy(),
        lambda i: f"{at_home['relationship'].iloc[i]!r} is no relationship",
    )
    members = pd.DataFrame(
        {
            "geocode": at_home["geocode"].astype(str).to_numpy(),
            "unit": at_home["unit"].astype(np.int64).to_numpy(),
            "members": 1,
            "heads": (at_home["relationship"] == _HOUSEHOLDER).to_numpy().astype(int),
            "partners": at_home["relationship"].isin(list(_PARTNERS)).to_numpy().astype(int),
        }
    )
    found = members.groupby(["geocode", "unit"]).sum()
    own = units.assign(geocode=units["geocode"].astype(str)).set_index(["geocode", "unit"])
    failures.add_each(
        ~found.index.isin(own.index),
        lambda i: f"unit {found.index[i][1]} of persons is no unit of block {found.index[i][0]}",
    )
    found = found.reindex(own.index, fill_value=0)
    is_occupied = own["occupied"].eq(True).to_numpy(dtype=bool, na_value=False)
    size = own["size"].fillna(0).astype(np.int64).to_numpy()
    n = found["members"].to_numpy()

    has_tenure, heads = own["tenure"].notna().to_numpy(), found["heads"].to_numpy()
    for text, is_wrong in {
        "has not as many members as its size": n != size,
        "is occupied without members, or has members and is not": (n > 0) != is_occupied,
        "has not one householder": is_occupied & (heads != 1),
        "has several partners": found["partners"].to_numpy() > 1,
        "has a tenure, or none, wrongly": has_tenure != is_occupied,
    }.items():
        if is_wrong.any():
            block, unit = own.index[int(is_wrong.argmax())]
            failures.add(f"unit {unit} of block {block} {text}", int(is_wrong.sum()))


def _check_derived(persons: pd.DataFrame, units: pd.DataFrame, failures: Failures) -> None:
    """Every attribute of a household equals that of its householder, or follows from its
    members."""
    at_home = persons[persons["unit"].notna()]
    state = at_home["geocode"].astype(str).str[:2].to_numpy()
    key = pd.MultiIndex.from_arrays([state, at_home["unit"].astype(np.int64)])
    homes = units[units["occupied"].eq(True).to_numpy(dtype=bool, na_value=False)]
    known = pd.MultiIndex.from_arrays([homes["geocode"].astype(str).str[:2], homes["unit"]])
    home = known.get_indexer(key)
    n = len(homes)

    def text(name: str) -> np.ndarray:
        return at_home[name].astype(str).to_numpy()

    def differs(name: str, own: np.ndarray, derived: np.ndarray) -> None:
        failures.add_each(
            own != derived,
            lambda i: (
                f"{name} of unit {homes['unit'].iloc[i]} in block {homes['geocode'].iloc[i]} is "
                f"{own[i]!r}, and its members give {derived[i]!r}"
            ),
        )

    def has(mask: np.ndarray) -> np.ndarray:
        return np.bincount(home[mask], minlength=n) > 0

    def ages(who: np.ndarray) -> np.ndarray:
        return _AGES[has(who & (age < 6)) + 2 * has(who & (age >= 6) & (age < 18))]

    relationship, sex, age = text("relationship"), text("sex"), text("age").astype(int)
    heads = relationship == _HOUSEHOLDER

    def of_head(values: np.ndarray) -> np.ndarray:
        found = np.empty(n, dtype=values.dtype)
        found[home[heads]] = values[heads]
        return found

    head_sex, head_age, races = of_head(sex), of_head(age), of_head(text("race"))
    ends = homes["hhage"].astype(str).str.split("-", expand=True).astype(int)
    failures.add_each(
        (head_age < ends[0].to_numpy()) | (head_age > ends[1].to_numpy()),
        lambda i: f"the householder of unit {homes['unit'].iloc[i]} is of another age",
    )
    partner = np.isin(relationship, list(_PARTNERS))
    same_sex = sex[partner] == head_sex[home[partner]]
    says_same = np.array([one.startswith("same") for one in relationship[partner]], dtype=bool)
    failures.add_each(same_sex != says_same, "the sexes of a couple do not fit its relationship")
    oldest = np.zeros(n, dtype=int)
    np.maximum.at(oldest, home, age)
    labels = np.array([*_ELDERLY.values()], dtype=object)
    couple = np.full(n, "no couple", dtype=object)
    couple[home[partner]] = [_PARTNERS[one] for one in relationship[partner]]
    is_married = np.array([one.startswith("married") for one in couple], dtype=bool)
    own_child, relative = np.isin(relationship, _OWN), np.isin(relationship, _RELATIVES)
    generations = has(own_child) & has(np.isin(relationship, _GENERATIONS))
    size = np.minimum(np.bincount(home, minlength=n), len(_SIZES) - 1)
    kind = pd.Series(couple).str.cat(
        [
            np.where(has(relative) | is_married, "relatives", "no relatives"),
            "own " + ages(own_child),
            "children " + ages(relative | np.isin(relationship, _OTHERS)),
            np.where(has(age < 18), "minors", "no minors"),
            np.where(generations, "three generations; size ", "size ") + _SIZES[size],
        ],
        sep="; ",
    )
    for name, derived in {
        "sex": head_sex,
        "hisp": of_head(text("hispanic")),
        "race": np.array([_SEVERAL_RACES if " + " in one else one for one in races]),
        "elderly": labels[np.searchsorted([*_ELDERLY], oldest, side="right") - 1],
        "hhtype_dhch": kind.to_numpy(),
    }.items():
        differs(name, homes[name].astype(str).to_numpy(), derived)


def _check_zeros(
    table: pd.DataFrame, zeros: Sequence[Mapping[str, Sequence[str]]], name: str, failures: Failures
) -> None:
    """No row has a combination that is impossible by declaration."""
    for zero in zeros:
        wrong = np.ones(len(table), dtype=bool)
        for column, labels in zero.items():
            wrong &= table[column].isin(list(labels)).to_numpy()
        failures.add_each(wrong, lambda i: f"row {i} of {name} is impossible")


def _check_kept(table: pd.DataFrame, released: ReleasedCounts, failures: Failures) -> None:
    """As many rows of every combination of codes in every block as the release has."""
    rows = read_table(released.file, [*released.area, *released.codes]).to_pandas().astype(str)
    area = rows[released.area[0]].str.cat([rows[name] for name in released.area[1:]])
    theirs = pd.DataFrame({"geocode": area, **{name: rows[name] for name in released.codes}})
    ours = pd.DataFrame({"geocode": table["geocode"].astype(str)})
    for name, (column, code) in released.codes.items():
        ours[name] = table[column].astype(str).map(code).to_numpy()
    counts = [one.groupby(list(one.columns), dropna=False).size() for one in (ours, theirs)]
    both = pd.concat(counts, axis=1, keys=["ours", "theirs"]).fillna(0)
    failures.add_each(
        (both["ours"] != both["theirs"]).to_numpy(),
        lambda i: (
            f"block {both.index[i][0]} has {both['ours'].iloc[i]:.0f} rows for "
            f"{both['theirs'].iloc[i]:.0f} of {released.file.name}"
        ),
    )
