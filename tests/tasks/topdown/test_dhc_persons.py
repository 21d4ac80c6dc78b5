from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.census import preset_census
from spineflow.tasks.census.census_input import CensusTables
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.topdown.ingest.generate import generate_county

from tests.flows.in_process import judged_once
from tests.tasks.topdown.dhc_input import levels, write_edited

PERSONS = preset_census("dhc_persons_2020").universes["persons"]
OTHER_NAMES = {"popSehsdTargetsRelship": "relationship", "hhgq8lev": "hhgq"}


def ours(name):
    return " * ".join(OTHER_NAMES.get(part.strip(), part.strip()) for part in name.split("*"))


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


CHANGED = {
    "RELSHIP must be from 20 to 38 in every row": {"RELSHIP": ["19", "39", ""]},
    "whoever has a QGQTYP (group quarters) must have RELSHIP 37 or 38": {
        "RELSHIP": ["20", "25", "36"],
        "QGQTYP": ["101", "501", "904"],
    },
    "whoever has RELSHIP 37 or 38 (group quarters) must have a QGQTYP": {
        "RELSHIP": ["37", "38", "38"],
        "QGQTYP": ["", "", ""],
    },
    "the unit of every householder (RELSHIP 20) must have FINAL_POP of 1 or more": {
        "RELSHIP": ["20", "20", "20"],
        "QGQTYP": ["", "", ""],
        "FINAL_POP": [0, 0, 0],
    },
}
"""What is refused as production refuses it, and what the first persons have instead."""


@pytest.fixture(scope="module")
def county(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder / "raw", persons=500, seed=3, state="35")
    write_edited(folder / "raw", folder)
    return folder


@pytest.mark.parametrize("statement", CHANGED)
def test_relationships_that_production_refuses_are_refused(
    county: Path, tmp_path: Path, statement: str
) -> None:
    tables = {name: pd.read_parquet(county / f"{name}.parquet") for name in ("persons", "units")}
    persons, units = tables["persons"], tables["units"].set_index("MAFID")
    is_alone = ~persons["MAFID"].duplicated(keep=False)
    rows = persons.index[is_alone][:3]
    for column, values in CHANGED[statement].items():
        if column == "FINAL_POP":
            units.loc[persons.loc[rows, "MAFID"], column] = values
        else:
            persons.loc[rows, column] = values
    for name, table in {"persons": persons, "units": units.reset_index()}.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
    paths = {name: str(tmp_path / f"{name}.parquet") for name in ("persons", "units")}
    paths["geography"] = str(county / "grfc.txt")
    census, schemas = preset_census("dhc_persons_2020"), {"persons": PERSONS.schema}
    with judged_once():
        found = CensusTables.of(census, schemas, paths).check().findings[0]
    assert found.rule.startswith(statement) and found.count == 3 and found.remedy
    refused = found.sentence(with_counts=True)
    assert "(3 rows break this); " in refused and refused.startswith("persons.parquet: ")
    assert "3 rows" not in found.sentence()


def test_a_county_as_production_has_it_is_accepted(county: Path) -> None:
    paths = {name: str(county / f"{name}.parquet") for name in ("persons", "units")}
    paths["geography"] = str(county / "grfc.txt")
    census, schemas = preset_census("dhc_persons_2020"), {"persons": PERSONS.schema}
    counted = CensusTables.of(census, schemas, paths).check().accepted().histograms["persons"]
    assert counted.sum() == len(pd.read_parquet(county / "persons.parquet"))
