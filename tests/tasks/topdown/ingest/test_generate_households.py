from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import incoherent
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import (
    Persons,
    draw_households,
    synthesize_households,
)

FACTS = Path("../shared/facts/dhc_2020_production.toml")


@st.composite
def blocks(draw):
    """Adults, minors and occupied units of some blocks in which households are possible."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        adults, minors = draw(st.integers(0, 25)), draw(st.integers(0, 15))
        people = adults + minors
        found.append((adults, minors, draw(st.integers(min(1, people), people))))
    return found


def persons_of(found, rng) -> tuple[Persons, np.ndarray]:
    adults, minors, units = (np.array(values) for values in zip(*found, strict=True))
    number = np.arange(len(found))
    block = np.concatenate([np.repeat(number, adults), np.repeat(number, minors)])
    is_adult = np.repeat([True, False], [adults.sum(), minors.sum()])
    order = rng.permutation(len(block))
    n = len(block)
    people = Persons(block[order], is_adult[order], rng.integers(1, 3, n), rng.integers(1, 64, n))
    return people, np.repeat(number, units)


@settings(max_examples=80, deadline=None)
@given(blocks(), st.integers(0, 2**32 - 1))
def test_any_blocks_get_households_whose_members_fit(found, seed) -> None:
    rng = np.random.default_rng(seed)
    people, block_of_unit = persons_of(found, rng)
    members = draw_households(rng, people, block_of_unit)
    assert incoherent(members, len(block_of_unit)) == {}
    assert (np.bincount(members.unit, minlength=len(block_of_unit)) > 0).all()
    assert np.array_equal(block_of_unit[members.unit], people.block)
    assert np.array_equal(members.age >= 18, people.is_adult)
    assert np.array_equal(members.race, people.race)
    assert np.array_equal(members.hispanic, people.hispanic)
    refuse_ages_that_do_not_fit(members)


def refuse_ages_that_do_not_fit(members) -> None:
    frame = pd.DataFrame(
        {
            "unit": members.unit,
            "relationship": members.relationship,
            "age": members.age,
            "sex": members.sex,
        }
    )
    heads = frame[frame["relationship"] == 20].set_index("unit")
    rest = frame[frame["relationship"] != 20].join(heads.add_suffix("_head"), on="unit")
    gap = rest["age_head"] - rest["age"]
    assert (gap[rest["relationship"].between(25, 27)] >= 15).all()
    assert (gap[rest["relationship"] == 30] >= 20).all()
    assert (gap[rest["relationship"].isin([29, 31])] <= -15).all()
    assert (rest["age"][rest["relationship"].between(21, 24)] >= 15).all()
    own_minor = rest[rest["relationship"].between(25, 27) & (rest["age"] < 18)]
    assert (own_minor["age_head"] < 60).all()


@pytest.mark.parametrize(
    ("units", "words"),
    [([0, 0, 0], "more occupied units than persons"), ([], "no occupied unit")],
)
def test_impossible_blocks_are_refused(units, words) -> None:
    people = Persons(np.array([0, 0]), np.array([True, True]), np.ones(2, int), np.ones(2, int))
    with pytest.raises(ValueError, match=words):
        draw_households(np.random.default_rng(1), people, np.array(units, int))


@pytest.fixture(scope="module")
def county(tmp_path_factory):
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder / "raw", persons=3_000, seed=5)
    files = synthesize_households(folder / "raw", folder / "coherent", seed=6)
    tables = {
        which: {n: pd.read_parquet(folder / which / f"{n}.parquet") for n in ("persons", "units")}
        for which in ("raw", "coherent")
    }
    return files, tables


def test_blocks_keep_what_is_counted_of_them(county) -> None:
    _, tables = county
    kept = []
    for of in tables.values():
        persons = of["persons"].join(of["units"].set_index("MAFID")["OIDTB"], on="MAFID")
        persons["is_adult"] = persons["QAGE"].astype(int) >= 18
        columns = ["OIDTB", "QGQTYP", "is_adult", "CENHISP", "CENRACE"]
        units = of["units"].groupby(["OIDTB", "RTYPE", "QGQTYP", "VACS"]).size()
        kept.append((persons.groupby(columns).size(), units))
    assert kept[0][0].equals(kept[1][0]) and kept[0][1].equals(kept[1][1])
    assert len(tables["raw"]["persons"].columns) == len(tables["coherent"]["persons"].columns)


@pytest.mark.slow
def test_units_tell_what_their_members_tell_one_by_one(county) -> None:
    _, tables = county
    units = tables["coherent"]["units"].set_index("MAFID")
    persons = tables["coherent"]["persons"]
    persons = persons[persons["QGQTYP"].str.strip() == ""]
    relationship, age = persons["RELSHIP"].astype(int), persons["QAGE"].astype(int)
    members = persons.assign(relationship=relationship, age=age)
    homes = dict(list(members.groupby("MAFID")))
    assert set(homes) == set(units.index[(units["RTYPE"] == "2") & (units["FINAL_POP"] > 0)])
    for unit, own in list(homes.items())[::4]:
        told, head = units.loc[unit], own[own["relationship"] == 20]
        assert len(head) == 1 and told["FINAL_POP"] == len(own)
        assert sorted(own["CUF_PNC"]) == list(range(1, len(own) + 1))
        assert told["HHLDRAGE"] == head["age"].iloc[0]
        assert told["HHSEX"] == int(head["QSEX"].iloc[0])
        assert told["HHRACE"] == int(head["CENRACE"].iloc[0])
        assert told["P18"] == (own["age"] < 18).sum() and told["P65"] == (own["age"] >= 65).sum()
        pair = own["relationship"][own["relationship"].between(21, 24)].tolist()
        due = 0 if len(own) == 1 else {21: 1, 23: 2, 22: 3, 24: 4}[pair[0]] if pair else 5
        assert told["CPLT"] == due
        assert told["TEN"] in ("1", "2", "3", "4")


def test_every_household_has_a_type_and_no_structural_zero_of_production(county) -> None:
    if not FACTS.exists():
        pytest.skip("needs ../shared")
    facts = tomllib.loads(FACTS.read_text())
    units = county[1]["coherent"]["units"]
    refuse_impossible_types(units[(units["RTYPE"] == "2") & (units["FINAL_POP"] > 0)], facts)


def refuse_impossible_types(units: pd.DataFrame, facts) -> None:
    """Every household's type is one of the 522, and it is in none of the 22 structural zeros."""
    ages = {1: "u6", 2: "6to17", 3: "both", 4: "none"}
    couples = {
        1: "married_opposite",
        2: "married_same",
        3: "cohabiting_opposite",
        4: "cohabiting_same",
    }
    number = {}
    for run in facts["hhtype_dhch"]["runs"]:
        names = ("couple", "relatives", "own", "child", "c18", "multig")
        for step, level in enumerate(range(run["first"], run["last"] + 1)):
            number[*(run[name] for name in names), run["size"] + step] = level
    bounds = np.array([25, 35, 45, 55, 60, 65, 75, 85])

    def levels(text: str) -> list[int]:
        parts = [part.split("-") for part in text.split(",")]
        return [i for part in parts for i in range(int(part[0]), int(part[-1]) + 1)]

    zeros = [
        {name: levels(text) for name, text in rule.items()}
        for rule in facts["constraints"]["units"]["structural_zeros"].values()
    ]
    for row in units.itertuples():
        key = (
            couples.get(row.CPLT, "none"),
            int(row.HHT <= 3),
            ages[row.PAOC],
            ages[row.PAC],
            int(row.P18 > 0),
            int(row.MULTG == 2),
            min(row.FINAL_POP, 7),
        )
        assert key in number
        place = {
            "sex": row.HHSEX - 1,
            "hhage": int(np.searchsorted(bounds, row.HHLDRAGE, side="right")),
            "elderly": int(row.P60 > 0) + int(row.P65 > 0) + int(row.P75 > 0),
            "hhtype_dhch": number[key],
        }
        for rule in zeros:
            assert not all(place[name] in among for name, among in rule.items())
