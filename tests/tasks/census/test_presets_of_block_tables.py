"""The block tables of 2010 hold together: races alone, in combination, and by origin and age."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings

SETTINGS = """
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "d"
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")

    def of(preset):
        file = folder / f"{preset}.toml"
        file.write_text(f'preset = "{preset}"\n{SETTINGS}', encoding="utf-8")
        settings = load_settings(TopdownSettings, file, presets=PRESETS)
        schema = settings.schema_of("persons")
        people = np.random.default_rng(1).integers(0, 4, schema.n_cells)
        told = {}
        for table in settings.compiled_census.tables:
            query = marginal_query(schema, table.query)
            mask = schema.cells_where(table.where) if table.where else np.ones(len(people), bool)
            told[table.name] = np.bincount(query.row_of_cell, people * mask, minlength=query.n_rows)
        races = [len(label.split(" + ")) for label in schema.labels("race")]
        return told, np.array(races)

    return of


@pytest.mark.parametrize("preset", ["block_tables_2010", "block_tables_2010_detailed"])
def test_tables_add_to_each_other(answers, preset):
    told, _ = answers(preset)
    persons = told["P1"].sum()
    for name in ("P3", "P4", "P5", "P12"):
        assert told[name].sum() == persons
    by_race = [told[f"P12{letter}"] for letter in "ABCDEFG"]
    assert (sum(by_race) == told["P12"]).all()
    assert [own.sum() for own in by_race] == told["P3"].tolist()
    assert told["P12H"].sum() == told["P4"][1]


def test_tables_of_63_races_add_to_those_of_seven(answers):
    told, races = answers("block_tables_2010_detailed")
    assert len(told["P8"]) == 63
    assert told["P8"][:6].tolist() == told["P3"][:6].tolist()
    assert told["P8"][6:].sum() == told["P3"][6]
    assert told["P9"].sum() == told["P4"][0]
    assert (told["P11"] <= np.minimum(told["P9"], told["P10"])).all()
    tallies = [own for name, own in told.items() if name.startswith("P6 ")]
    # Everybody is tallied under each of his races.
    assert sum(own.sum() for own in tallies) == (told["P8"] * races).sum()
    by_origin = [own for name, own in told.items() if name.startswith("P7 ")]
    assert [own.sum() for own in by_origin] == [own.sum() for own in tallies]
