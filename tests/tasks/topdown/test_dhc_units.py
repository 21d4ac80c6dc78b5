from __future__ import annotations

import tomllib
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.census.census import preset_census
from spineflow.tasks.census.influence import Norms
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.products.product import PRESETS

from tests.tasks.topdown.dhc_input import levels

CENSUS = preset_census("dhc_units_2020")
UNITS, HOUSEHOLDS = CENSUS.universes["units"], CENSUS.universes["households"]


def ours(name):
    return " * ".join(part.strip() for part in name.split("*"))


def preset(land):
    return tomllib.loads((PRESETS / f"dhc_units_2020_{land.lower()}.toml").read_text())


def types_of(facts) -> list[dict]:
    """The attributes of every household type, in the order of the levels."""
    found = []
    for run in facts["hhtype_dhch"]["runs"]:
        for step in range(run["last"] - run["first"] + 1):
            found.append({**run, "size": run["size"] + step})
    return found


def test_cells_and_structural_zeros():
    schema = HOUSEHOLDS.schema
    assert schema.shape == (2, 9, 2, 7, 4, 3, 522) and UNITS.schema.shape == (35,)
    nobody = np.zeros(schema.n_cells, dtype=bool)
    for zero in HOUSEHOLDS.zeros:
        nobody |= schema.cells_where(zero.where)
    assert (schema.n_cells, nobody.sum()) == (1_578_528, 466_956)


def test_structural_zeros_are_those_of_production(facts):
    schema, due = HOUSEHOLDS.schema, facts["constraints"]["units"]["structural_zeros"]
    assert [zero.name for zero in HOUSEHOLDS.zeros] == list(due)
    for zero in HOUSEHOLDS.zeros:
        found = {name: list(places) for name, places in schema.positions(zero.where).items()}
        assert found == {name: levels(text) for name, text in due[zero.name].items()}


def test_types_of_households_are_told_as_production_tells_them(facts):
    codes = {"u6": "1", "6to17": "2", "both": "3", "none": "4"}
    couples = {
        "married_opposite": "1",
        "married_same": "2",
        "cohabiting_opposite": "3",
        "cohabiting_same": "4",
        "none": "5",
    }
    columns = ("FINAL_POP", "CPLT", "HHT", "PAOC", "PAC", "P18", "MULTG")
    recode = HOUSEHOLDS.recodes["hhtype_dhch"]
    assert set(recode.columns) == set(columns)

    def level(*values: str) -> int:
        row = dict(zip(columns, values, strict=True))
        for number, where in recode.rules:
            if all(where[name].holds(row[name]) for name in columns):
                return number
        return -1

    for number, kind in enumerate(types_of(facts)):
        told = (codes[kind["own"]], codes[kind["child"]], "3" if kind["c18"] else "0")
        couple = "0" if kind["size"] == 1 else couples[kind["couple"]]
        multig = "2" if kind["multig"] else "1" if kind["size"] > 2 else "0"
        household = ("2", "3") if kind["relatives"] else ("5", "7")
        for household_type in household:
            size = str(kind["size"])
            assert level(size, couple, household_type, *told, multig) == number
        if kind["size"] == 7:
            assert level("23", couple, household[0], *told, multig) == number
    assert level("2", "1", "1", "1", "1", "1", "1") == -1
    assert level("1", "0", "4", "4", "4", "0", "0") == 392


def test_coarsenings_are_those_of_production(facts):
    schema, types = HOUSEHOLDS.schema, types_of(facts)
    for name, recode in facts["recodes"]["units"].items():
        if name in ("tenure_3lev", "family_nonfamily_size") or name.startswith("DetailedCouple"):
            continue
        own = schema.coarsening(name)
        assert own.attribute == recode["of"]
        groups = recode["groups"]
        if name == "multig":
            assert own.groups == tuple(kind["multig"] for kind in types)
            continue
        found = [[i for i, g in enumerate(own.groups) if g == k] for k in range(len(groups))]
        assert found == [levels(group) for group in groups]
    own = schema.coarsening("DetailedCoupleTypeMultGenDetOwnChildSize")
    orders = (
        ("none", "married_same", "married_opposite", "cohabiting_same", "cohabiting_opposite"),
        (0, 1),
        ("none", "u6", "6to17", "both"),
        range(1, 8),
    )
    names = ("couple", "multig", "own", "size")
    place = [
        tuple(order.index(kind[name]) for name, order in zip(names, orders, strict=True))
        for kind in types
    ]
    rank = {key: number for number, key in enumerate(sorted(set(place)))}
    assert len(rank) == 183 and own.groups == tuple(rank[key] for key in place)


def test_unit_histogram_is_that_of_production(facts):
    schema = UNITS.schema
    for name, recode in facts["recodes"]["unit_histogram"].items():
        if name == "hhgq_vector":
            assert schema.coarsening(name).groups == (*[0] * 11, *range(1, 25))
        elif name == "tenure_3lev":
            groups = schema.coarsening("hhtenshort_3lev").groups
            due = [levels(group) for group in recode["groups"]]
            assert [[i for i, g in enumerate(groups) if g == k] for k in range(3)] == due
        else:
            vacant = schema.cells_where({"occupancy": ["vacant"]})
            assert np.flatnonzero(vacant).tolist() == levels(recode["groups"][0])


def test_the_charge_is_that_of_a_unit_and_a_move_is_stated_beside_it():
    for universe in (UNITS, HOUSEHOLDS):
        assert universe.charge == Norms.of_records(1)
        assert universe.stated == Norms.of_records(2)
        assert {reach.table for reach in universe.reaches} >= {"units", "persons"}


def test_queries_have_the_answers_of_production(facts):
    names = [ours(name) for name in facts["units"]["queries"]]
    sizes = [marginal_query(HOUSEHOLDS.schema, name).n_rows for name in names[:-1]]
    sizes.append(marginal_query(UNITS.schema, names[-1]).n_rows)
    assert sizes == facts["units"]["answers"] and sum(sizes) == 1_737_332


@pytest.mark.parametrize("land", ["US", "PR"])
def test_every_query_has_the_rho_of_production(facts, land):
    own, due = preset(land), facts["units"][land]
    names = [ours(name) for name in facts["units"]["queries"]]
    budgets = own["budget"]
    assert sum(Fraction(budgets[name]["rho"]) for name in budgets) == Fraction(due["rho"])
    for geolevel, shares in due["query_shares"].items():
        of_geolevel = Fraction(due["geolevel_rho"][geolevel])
        spent = {}
        for budget in budgets.values():
            rho = Fraction(budget["rho"]) * Fraction(budget["geolevels"][geolevel])
            queries = budget["queries"][geolevel].items()
            spent |= {name: rho * Fraction(share) for name, share in queries}
        assert sorted(spent) == sorted(names)
        for name, share in zip(names, shares, strict=True):
            assert spent[name] == of_geolevel * Fraction(share)
    assert set(budgets["households"]["geolevels"]) == set(due["geolevels"])


@pytest.mark.parametrize("land", ["US", "PR"])
def test_passes_are_those_of_production(facts, land):
    workload, due = preset(land)["workload"], facts["estimation"]["units"]
    for kind in ("least_squares", "rounder"):
        passes = [[ours(name) for name in one] for one in due[kind]]
        assert workload["units"]["passes"]["other"][kind] == passes[:1]
        assert workload["households"]["passes"]["other"][kind] == passes[1:]
    assert workload["households"]["passes"]["other"]["interleaved"]
    assert workload["households"]["on_demand"]
