"""Off-spine distances of named entities by the command `spine`, from public data alone."""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from spineflow.flows.cli import main
from spineflow.tasks.pages.document import Figure, Section
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest.generate import generate_country, generate_county
from spineflow.tasks.topdown.ingest.ingest import public_geography
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.release.map_section import map_section
from spineflow.tasks.topdown.release.tabulations.tables import Tabulation, write_tables
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


def test_page_has_every_entity_farthest_first_with_downloads(
    county: Path, tmp_path: Path, capsys
) -> None:
    args = ["spine", str(written(county, "pl94_2020_us")), "--page", str(tmp_path / "p.html")]
    assert main([*args, "--csv", str(tmp_path / "e.csv")]) == 0
    page, found = (tmp_path / "p.html").read_text(), pd.read_csv(tmp_path / "e.csv", dtype=str)
    link = re.search(r'download="place-all-\d+-place\.csv" href="data:[^,]*,([^"]*)"', page)
    assert link is not None
    header, *rows = csv.reader(StringIO(unquote(link[1])))
    assert header == ["place", "name", "blocks", "AIAN spine", "optimised spine"]
    due = found[(found["universe"] == "persons") & (found["category"] == "place")]
    due = due[due["spine"] == "optimized"]
    assert {row[0]: row[4] for row in rows} == dict(
        zip(due["entity"], due["distance"], strict=True)
    )
    assert [int(row[4]) for row in rows] == sorted((int(row[4]) for row in rows), reverse=True)


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


def test_settings_of_another_product_are_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "s.toml").write_text('[input]\ntrips = "t.parquet"\n[privacy]\ndataset = "d"\n')
    assert main(["spine", str(tmp_path / "s.toml")]) == 2
    assert "'budget' is missing" in capsys.readouterr().err


geopandas = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")

RELEASED = [10, 20, 30, 40]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A release of four blocks in two tracts, the last two of them in a place."""
    run = RunDirectory(tmp_path / "run")
    blocks = ["4400700011011000", "4400700011011001", "4400700021011000", "4400700021011001"]
    frame = pd.DataFrame(
        {
            "block_geocode": blocks,
            "AIANNHCE": "9999",
            "COUSUBFP": "00001",
            "PLACEFP": ["99999", "99999", "12345", "12345"],
        }
    )
    geography_file(run).parent.mkdir(parents=True)
    frame.to_parquet(geography_file(run), index=False)
    run.release.mkdir()
    histogram = sparse.csr_array(np.array(RELEASED).reshape(-1, 1))
    one = np.ones((1, 1), dtype=np.int64)
    write_tables([Tabulation(frame, ("P0010001",), (histogram,), (one,))], run.release)
    return run


def settings_of_map_section(folder: Path, geometry: Path | str | None) -> TopdownSettings:
    given = "" if geometry is None else f'geometry = "{geometry}"\n'
    written = folder / "settings.toml"
    written.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\n'
        f'geography = "g"\n{given}[privacy]\ndataset = "mapped"\n[run]\nuniverses = ["persons"]\n'
    )
    return load_settings(TopdownSettings, written, presets=PRESETS)


def layers(run: RunDirectory, folder: Path) -> Path:
    folder.mkdir()
    for stem in ("140_tract", "160_place"):
        codes = pq.read_table(run.release / "tables" / f"{stem}.parquet")["GEOCODE"].to_pylist()
        shapes = [shapely.box(i, 0, i + 1, 1) for i in range(len(codes))]
        frame = geopandas.GeoDataFrame({"GEOID": codes, "geometry": shapes}, crs=4269)
        frame.to_parquet(folder / f"{stem}.parquet")
    return folder


def words_and_svg(section: Section | None) -> tuple[str, str]:
    assert section is not None
    (figure,) = section.blocks
    assert isinstance(figure, Figure)
    return figure.caption, figure.svg


def test_for_confidential_input_margins_are_shown_and_nothing_else(run, tmp_path: Path) -> None:
    own = settings_of_map_section(tmp_path, layers(run, tmp_path / "geo"))
    section = map_section(run, own, None)
    assert section is not None and section.blocks == (
        "Without margins there is nothing to show on a map.",
    )
    tables = run.release / "tables"
    codes = pq.read_table(tables / "140_tract.parquet")["GEOCODE"]
    margins = {"GEOCODE": codes, "P0010001_LOWER": [20, 60], "P0010001_UPPER": [40, 64]}
    pq.write_table(pa.table(margins), tables / "140_tract_margins.parquet")
    caption, svg = words_and_svg(map_section(run, own, None))
    assert caption.startswith("Noise by tract: half the width") and "90 %" in caption
    assert "2 to" in svg and "to 10<" in svg


def test_geometry_is_a_path_beside_the_settings(tmp_path: Path) -> None:
    assert settings_of_map_section(tmp_path, "geo").input.geometry == str(tmp_path / "geo")
    assert "geometry" not in settings_of_map_section(tmp_path, "geo").input.paths()
    with pytest.raises(InputRefused, match="input.geometry must be a path"):
        settings_of_map_section(tmp_path, "s3://bucket/geo")
