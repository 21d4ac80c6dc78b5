from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.census.census import preset_census
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.products.presets import PRESETS

FACTS = Path("../shared/facts/dhc_2020_production.toml")
PERSONS = preset_census("dhc_persons_2020").universes["persons"]
OTHER_NAMES = {"popSehsdTargetsRelship": "relationship", "hhgq8lev": "hhgq"}


@pytest.fixture(scope="module")
def facts():
    if not FACTS.exists():
        pytest.skip("needs ../shared")
    return tomllib.loads(FACTS.read_text())


def ours(name):
    return " * ".join(OTHER_NAMES.get(part.strip(), part.strip()) for part in name.split("*"))


def levels(text):
    return [
        level
        for part in text.split(",")
        for level in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
    ]


def preset(land):
    return tomllib.loads((PRESETS / f"dhc_persons_2020_{land.lower()}.toml").read_text())


def test_cells_and_structural_zeros():
    schema = PERSONS.schema
    assert schema.shape == (42, 2, 116, 2, 63)
    nobody = np.zeros(schema.n_cells, dtype=bool)
    for zero in PERSONS.zeros:
        nobody |= schema.cells_where(zero.where)
    assert (schema.n_cells, nobody.sum()) == (1_227_744, 322_560)


def test_structural_zeros_are_those_of_production(facts):
    schema = PERSONS.schema
    found = np.zeros((42, 116), dtype=bool)
    for zero in PERSONS.zeros:
        chosen = schema.positions(zero.where)
        found[np.ix_(chosen["relgq"], chosen["age"])] = True
    due = np.zeros_like(found)
    for name, ages in facts["constraints"]["persons"]["structural_zeros"].items():
        due[int(name.split("_")[0].removeprefix("relgq")), levels(ages)] = True
    assert np.array_equal(found, due)


def test_recodes_are_those_of_production(facts):
    schema = PERSONS.schema
    for name, recode in facts["recodes"]["persons"].items():
        own = schema.coarsening(ours(name))
        groups = [levels(group) for group in recode["groups"]]
        assert own.attribute == recode["of"]
        assert [
            [i for i, g in enumerate(own.groups) if g == k] for k in range(len(groups))
        ] == groups


def test_queries_have_the_answers_of_production(facts):
    sizes = [marginal_query(PERSONS.schema, ours(n)).n_rows for n in facts["persons"]["queries"]]
    assert sizes == facts["persons"]["answers"]
    assert sum(sizes) == 1_903_289


@pytest.mark.parametrize("land", ["US", "PR"])
def test_budgets_and_passes_are_those_of_production(facts, land):
    own, due = preset(land), facts["persons"][land]
    budget = own["budget"]["persons"]
    assert budget["rho"] == due["rho"]
    assert budget["geolevels"] == due["geolevels"]
    queries = [ours(name) for name in facts["persons"]["queries"]]
    for geolevel, shares in due["query_shares"].items():
        assert budget["queries"][geolevel] == dict(zip(queries, shares, strict=True))
        spent = Fraction(due["rho"]) * Fraction(due["geolevels"][geolevel])
        assert spent == Fraction(due["geolevel_rho"][geolevel])
    passes = own["workload"]["persons"]["passes"]["other"]
    production = facts["estimation"]["persons"]
    for kind in ("least_squares", "rounder"):
        assert passes[kind] == [[ours(name) for name in one] for one in production[kind]]
    assert passes["interleaved"] and own["workload"]["persons"]["on_demand"]
