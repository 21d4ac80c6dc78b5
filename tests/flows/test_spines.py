"""Every kind of spine end to end, what the report says of it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.paths import spine_folder

GEOLEVELS = {
    "conventional": ["US", "State", "County", "Tract", "Block_Group", "Block"],
    "aian": ["US", "State", "County", "Tract", "Block_Group", "Block"],
    "dhc": [
        "US",
        "State",
        "County",
        "Prim",
        "Tract_Subset_Group",
        "Tract_Subset",
        "Block_Group",
        "Block",
    ],
}
CATEGORIES = {
    "conventional": {"aian", "group_quarters", "mcd", "place"},
    "aian": {"aian", "group_quarters", "mcd", "place"},
    "dhc": {"school_district", "block_group"},
}
STRONG_MCD_STATE = "44"
BARE = ("release.margins=false", "release.tables=false")
"""A release of microdata alone."""


@pytest.fixture(scope="module")
def strong_mcd_county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strong-mcd")
    generate_county(folder, persons=1000, seed=11, state=STRONG_MCD_STATE)
    return folder


@pytest.fixture(scope="module")
def small_county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    generate_county(folder, persons=FEWEST_PERSONS, seed=5)
    return folder


def write_settings(
    folder: Path, county: Path, *, preset: str, geography: Path | None = None
) -> Path:
    path = folder / "settings.toml"
    path.write_text(
        f'preset = "{preset}"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{geography or county / "grfc.txt"}"\n'
        '[privacy]\ndataset = "county"\nledger = "ledger.db"\n'
    )
    return path


@pytest.mark.soak(5)
@pytest.mark.usefixtures("in_process", "uncompared")
@pytest.mark.parametrize(
    "preset, spine",
    [("pl94_2020_us", "conventional"), ("pl94_2020_us", "aian"), ("dhc_equal", "dhc")],
)
def test_every_spine_runs_end_to_end(
    strong_mcd_county: Path, tmp_path: Path, capsys, preset: str, spine: str
) -> None:
    settings = write_settings(tmp_path, strong_mcd_county, preset=preset)
    run = RunDirectory(tmp_path / "run")
    arguments = ["run", "topdown", str(settings), "--run-dir", str(run.root)]
    # `test_estimate` has the margins and the tables of the other spines.
    for override in (f"geography.spine={spine}", *(() if spine == "dhc" else BARE)):
        arguments += ["--set", override]
    assert main(arguments) == 0, capsys.readouterr().err
    assert json.loads((run.checks / "checks.json").read_text())["passed"]
    for universe in ("persons", "units"):
        geounits = pd.read_parquet(spine_folder(run, universe) / "geounits.parquet")
        assert list(dict.fromkeys(geounits["geolevel"])) == GEOLEVELS[spine]
        distances = pd.read_parquet(spine_folder(run, universe) / "summary" / "distances.parquet")
        assert set(distances["spine"]) == {"aian", spine}
        assert set(distances["category"]) <= CATEGORIES[spine]
    report = run.root / "report" / "report.html"
    written = report.read_text()
    sections = {part.partition("</h2>")[0]: part for part in written.split("<h2>")}
    for universe in ("persons", "units"):
        assert sections[f"The spine of {universe}"].count("<svg") == 2

    for made in (report, *(spine_folder(run, "units") / "summary").iterdir()):
        made.unlink()
    capsys.readouterr()
    assert main(["report", str(run.root)]) == 0
    assert str(report) in capsys.readouterr().out
    assert report.read_text() == written


def with_district(values: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(SDUNI=values)


def block_in_two_counties(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame.iloc[[0]].assign(TABBLKCOU="003")])


REFUSED = {
    "unknown category": (
        ['geography.categories=["aian", "WARD"]'],
        None,
        "has no column 'WARD'",
    ),
    "school districts in no column": (
        ['geography.school_district_column="SDELM"'],
        None,
        "has no column 'SDELM'",
    ),
    "school districts neither text nor numbers": (
        [],
        with_district(True),
        "has no column 'SDUNI' of text or numbers",
    ),
    "gaps in school districts": (
        [],
        lambda frame: frame.assign(SDUNI=frame["SDUNI"].where(frame.index > 2)),
        "column 'SDUNI' of the geography has missing values",
    ),
    "places of mixed types": (
        [],
        lambda frame: frame.assign(PLACEFP=frame["PLACEFP"].where(frame.index > 2, "Town")),
        "PLACEFP",
    ),
    "block in two counties": ([], block_in_two_counties, "OIDTABBLK must be different"),
    "fanout cutoff below 0": (["geography.fanout_cutoff=-1"], None, "geography.fanout_cutoff"),
    "geolevel with a share of 0": (
        ['budget.persons.geolevels.Prim="0"', 'budget.persons.geolevels.County="1/4"'],
        None,
        "budget.persons.geolevels holds a share of 0",
    ),
    "geolevels of another spine": (
        ["geography.spine=optimized"],
        None,
        "geolevel 'Prim' is not part of the optimized spine",
    ),
    "area that is none": (
        ['geography.aian_areas=["parish"]'],
        None,
        "'parish' is no type of AIAN area",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_spines_that_cannot_be_built_are_refused(
    case: str, small_county: Path, tmp_path: Path, capsys
) -> None:
    overrides, change, words = REFUSED[case]
    frame = pd.read_csv(small_county / "grfc.txt", sep="|", dtype="str")
    geography = tmp_path / "geography.parquet"
    (change(frame) if change else frame).to_parquet(geography)
    settings = write_settings(tmp_path, small_county, preset="dhc_equal", geography=geography)
    arguments = [part for override in overrides for part in ("--set", override)]
    assert main(["check", "topdown", str(settings), *arguments]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("spineflow: ") and message.endswith(".")
    assert words in message
