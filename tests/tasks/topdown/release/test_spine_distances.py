"""Off-spine distances of named entities by the command `spine`, from public data alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest.generate import generate_country, generate_county
from spineflow.tasks.topdown.ingest.ingest import public_geography
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import spines_of

REPOSITORY = Path(__file__).resolve().parents[4]
COUNTY = """\
preset = "PRESET"
[input]
persons = "nobody-reads-this.parquet"
units = "units.parquet"
geography = "named.txt"
[privacy]
dataset = "county"
ledger = "no-ledger.db"
"""


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A county whose places have names, without persons."""
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=1_500, seed=5)
    (folder / "persons.parquet").unlink()
    blocks = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str)
    blocks["PLACE_NAME"] = ["" if code == "99999" else f"Town {code}" for code in blocks["PLACEFP"]]
    blocks.to_csv(folder / "named.txt", sep="|", index=False)
    return folder


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("country")
    (folder / "input").mkdir()
    generate_country(folder / "input")
    areas = pd.read_csv(folder / "input" / "areas.csv", dtype=str)
    areas["called"] = "School of " + areas["school"]
    areas.to_csv(folder / "input" / "areas.csv", index=False)
    text = (REPOSITORY / "flows" / "demos" / "country.toml").read_text(encoding="utf-8")
    text = text.replace(
        "\n[census.attributes", '\nentities.school.name = "called"\n[census.attributes', 1
    )
    (folder / "settings.toml").write_text(text, encoding="utf-8")
    return folder


def written(folder: Path, preset: str) -> Path:
    file = folder / f"{preset}.toml"
    file.write_text(COUNTY.replace("PRESET", preset))
    return file


def distance(spine, is_inside: np.ndarray) -> int:
    """Algorithm 1 for one entity, a pass up the tree."""
    inside, rest = is_inside.astype(int), 1 - is_inside.astype(int)
    for above, below in zip(spine.geolevels[-2::-1], spine.geolevels[:0:-1], strict=True):
        x = np.bincount(below.parent, inside, len(above)).astype(int)
        y = np.bincount(below.parent, rest, len(above)).astype(int)
        inside, rest = np.minimum(x, y + 1), np.minimum(y, x + 1)
    return int(inside.sum())


@pytest.mark.parametrize("preset", ["pl94_2020_us", "dhc_equal"])
def test_distances_of_every_entity_are_those_of_a_pass_up_the_tree(
    county: Path, tmp_path: Path, capsys, preset: str
) -> None:
    file = written(county, preset)
    if preset == "dhc_equal":
        file.write_text(file.read_text() + '[geography]\nschool_district_column = "COUSUBFP"\n')
    before = {path.name for path in county.iterdir()}
    out = tmp_path / "new" / "entities.csv"
    assert main(["spine", str(file), "--csv", str(out), "--page", str(tmp_path / "p.html")]) == 0
    assert {path.name for path in county.iterdir()} == before, "no ledger, no run"
    found = pd.read_csv(out, dtype={"entity": str}, keep_default_na=False)
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    geography, invariants = public_geography(settings)
    blocks = spines_of(settings).rows((geography, invariants))
    codes = {
        "place": blocks["block_geocode"].astype(str).str[:2] + blocks["PLACEFP"].astype(str),
        "school_district": blocks["block_geocode"].astype(str).str[:2]
        + blocks["COUSUBFP"].astype(str),
        "block_group": blocks["block_geocode"].astype(str).str[:12],
        "aian": blocks["AIANNHCE"].astype(str),
    }
    compared = 0
    for universe in ("persons", "units"):
        spine = spines_of(settings).spine(universe, (geography, invariants))
        own = found[(found["universe"] == universe) & (found["spine"] == settings.geography.spine)]
        for row in own[own["category"].isin(list(codes))].itertuples():
            inside = (codes[row.category] == row.entity).to_numpy()[spine.block_row]
            assert (row.blocks, row.distance) == (inside.sum(), distance(spine, inside))
            compared += 1
    assert compared >= 8
    assert set(found["category"]) == (
        {"aian", "group_quarters", "place"}
        if preset == "pl94_2020_us"
        else {"school_district", "block_group"}
    )
    assert "group_quarters" not in set(found.loc[found["universe"] == "units", "category"])
    shown = capsys.readouterr().out
    assert "AIAN spine" in shown and f"entities: {out}" in shown
    if preset == "pl94_2020_us":
        places = found[found["category"] == "place"]
        assert (places["name"] == "Town " + places["entity"].str[2:]).all()
        assert (found.loc[found["category"] != "place", "name"] == "").all()


def test_entities_of_a_declared_census_and_areas_of_ones_own(
    country: Path, tmp_path: Path, capsys
) -> None:
    areas = pd.read_csv(country / "input" / "areas.csv", dtype=str)
    for file in (country / "input").iterdir():
        if not file.name.startswith("areas"):
            file.unlink()
    sections = areas["section"].tolist()
    listed = pd.DataFrame(
        {"area": ["two"] * 2 + ["all"] * len(sections), "block": sections[:2] + sections}
    )
    listed.to_csv(tmp_path / "own.csv", index=False)
    args = ["spine", str(country / "settings.toml"), "--entities", str(tmp_path / "own.csv")]
    assert main([*args, "--csv", str(tmp_path / "e.csv")]) == 0
    found = pd.read_csv(tmp_path / "e.csv", keep_default_na=False)
    own = found[found["category"] == "listed areas"].set_index(["universe", "entity"])
    assert (own.loc[("persons", "all"), ["blocks", "distance"]] == [len(sections), 1]).all()
    assert own.loc[("persons", "two"), "blocks"] == 2
    schools = found[found["category"] == "school"]
    assert (schools["name"] == "School of " + schools["entity"]).all() and set(
        schools["spine"]
    ) == {"conventional"}
    assert "listed areas" in capsys.readouterr().out


REFUSED = {
    "no geography": (["--set", "input.geography=no.txt"], "no.txt: the file does not exist"),
    "no such column": (
        ["--set", 'geography.categories=["SDUNI9"]'],
        "SDUNI9",
    ),
    "nothing off the spine": (
        ["--set", "geography.categories=[]"],
        "name columns of the geography as geography.categories, or list areas with --entities",
    ),
    "unknown blocks": (["--entities", "LISTED"], "a code that is of no block"),
    "no list": (["--entities", "nowhere.csv"], "nowhere.csv"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_distance_is_refused_in_one_sentence(
    county: Path, tmp_path: Path, capsys, case: str
) -> None:
    given_arguments, sentence = REFUSED[case]
    (tmp_path / "own.csv").write_text("area,block\na,1\n")
    arguments = [str(tmp_path / "own.csv") if x == "LISTED" else x for x in given_arguments]
    out = tmp_path / "e.csv"
    file = written(county, "pl94_2020_us")
    assert main(["spine", str(file), "--csv", str(out), *arguments]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err and shown.err.count("\n") == 1 and not out.exists()
