"""Margins beside the tables of a release."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.dissemination.released_tables import counts_in_margins
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import STAMP_FILE
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import (
    estimate,
    lay_out,
    measure,
    read_dataset,
    with_seed,
)
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.intervals.report import write_run_intervals
from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
from spineflow.tasks.topdown.release.microdata import write_universe
from spineflow.tasks.topdown.release.tabulations.levels import SUMMARY_LEVELS
from spineflow.tasks.topdown.release.tabulations.run import (
    RunTables,
    has_margins,
    keep_estimates,
    margin_pieces,
    missing_margins,
    write_margins,
)
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine import files
from spineflow.tasks.topdown.spine.files import RunUniverse
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.tables import check_margins

from tests.seeds import covering
from tests.tasks.topdown.declared import load, run_declared
from tests.tasks.topdown.test_declared_census import COUNTRY, generate_country


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, TopdownSettings]:
    """A small county with its microdata, tables and margins, and nothing confidential."""
    folder = tmp_path_factory.mktemp("margins")
    tables = generate_county(folder / "county", persons=1500, seed=6)
    (folder / "settings.toml").write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{tables.persons}"\n'
        f'units = "{tables.units}"\ngeography = "{tables.geography}"\nconfidential = false\n'
        '[privacy]\ndataset = "margins"\n'
    )
    settings = with_seed(
        load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS), 3
    )
    layout = lay_out(read_dataset(settings, folder / "dataset"), settings, folder / "layout")
    run = estimate(measure(layout, settings, folder / "measured"), settings, folder / "run")
    run.unchecked_release.mkdir()
    for name in ("settings.toml", STAMP_FILE):
        (run.root / name).touch()
    (run.root / "confidential").unlink()
    for universe in settings.run.universes:
        write_universe(RunUniverse(run, settings, universe))
    RunTables(run, settings).write()
    assert has_margins(settings) and missing_margins(run, settings)
    write_margins(run, settings)
    assert not missing_margins(run, settings)
    return run, settings


def both(run: RunDirectory, stem: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table and its margins."""
    folder = run.unchecked_release / "tables"
    return tuple(pd.read_parquet(folder / f"{stem}{end}.parquet") for end in ("", "_margins"))


@pytest.mark.slow
def test_every_cell_of_every_table_has_an_interval(released):
    run, _ = released
    for level in SUMMARY_LEVELS.values():
        table, margins = both(run, level.stem)
        variables = [name for name in table if name[0] in "PH" and name[1:].isdigit()]
        codes = [name for name in table if name not in variables]
        pd.testing.assert_frame_equal(table[codes], margins[codes])
        ends = [f"{name}_{end}" for name in variables for end in ("LOWER", "UPPER")]
        assert list(margins.columns) == [*codes, *ends]
        lower, upper = (
            margins[[f"{v}_{e}" for v in variables]].to_numpy() for e in ("LOWER", "UPPER")
        )
        assert (lower >= 0).all() and (lower <= upper).all()
        inside = (lower <= table[variables]) & (table[variables] <= upper)
        assert inside.to_numpy().mean() > 0.7
        # The number of housing units is an invariant.
        assert (margins["H0010001_LOWER"] == table["H0010001"]).all()
        assert (margins["H0010001_UPPER"] == table["H0010001"]).all()
        text = run.unchecked_release / "tables" / f"{level.stem}_margins.csv"
        first, *_ = text.read_text().splitlines()
        assert first == "# NOT PRIVATE"
        assert pd.read_csv(text, comment="#").shape == margins.shape
    state, _ = both(run, "040_state")
    _, margins = both(run, "040_state")
    assert (margins["P0010001_LOWER"] == state["P0010001"]).all()  # so is a state's total


@pytest.mark.slow
def test_the_report_says_how_many_counts_are_in_their_margins(released):
    run, _ = released
    rows = {row["table"]: row for row in counts_in_margins(run.unchecked_release)}
    table, margins = both(run, "140_tract")
    n_open = n_inside = 0
    for name in (name for name in table if f"{name}_LOWER" in margins):
        lower, upper = (margins[f"{name}_{end}"] for end in ("LOWER", "UPPER"))
        n_open += int((lower < upper).sum())
        n_inside += int(((lower < upper) & table[name].between(lower, upper)).sum())
    assert rows["140_tract"]["counts"] == n_open > 0
    assert rows["140_tract"]["inside"] == f"{n_inside / n_open:.1%}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda margins: margins, ""),
        (lambda margins: margins.iloc[1:], "does not have the rows"),
        (lambda margins: margins.iloc[::-1], "does not have the rows"),
        (lambda margins: margins.drop(columns="P0010003_UPPER"), "two columns for each"),
        (lambda margins: margins.assign(P0010001_LOWER=-1), "begins below zero"),
        (lambda margins: margins.assign(H0010002_LOWER=10**6), "ends before it begins"),
    ],
)
def test_margins_that_are_wrong_fail_their_check(released, tmp_path: Path, edit, told):
    run, _ = released
    shutil.copytree(run.unchecked_release / "tables", tmp_path / "tables")
    path = tmp_path / "tables" / "140_tract_margins.parquet"
    edit(pd.read_parquet(path)).to_parquet(path, index=False)
    seen, missing = Failures(), Failures()
    check_margins(tmp_path, [], seen)
    assert bool(seen.count) == bool(told) and told in " ".join(seen.texts)
    (tmp_path / "tables" / "050_county_margins.csv").unlink()
    check_margins(tmp_path, [["050_county"]], missing)
    assert missing.count > seen.count


@pytest.mark.slow
def test_margins_are_the_intervals_that_the_command_writes(released, tmp_path: Path):
    """Of blocks, which are geounits, and of places, which are not."""
    run, settings = released
    geography = pd.read_parquet(run.root / "spine" / "geography.parquet")
    for stem, column in (("750_block", "block_geocode"), ("160_place", "PLACEFP")):
        listed = geography.assign(area=geography[column], block=geography["block_geocode"])
        listed = listed[listed["area"] != "99999"]
        listed[["area", "block"]].to_csv(tmp_path / "areas.csv", index=False)
        out = tmp_path / "out.parquet"
        asked = ["votingage", "hhgq"]
        entities = tmp_path / "areas.csv"
        list(write_run_intervals(run, settings, asked, where=entities, out=out))
        table = pd.read_parquet(out).set_index("geocode")
        _, margins = both(run, stem)
        geocode = margins["GEOCODE"].str[2:]
        if "BLOCK" in margins:  # the first of whose four digits is the block group
            geocode = margins["GEOCODE"].str[:11] + margins["BLOCK"].str[0] + margins["BLOCK"]
        margins = margins.set_index(geocode)
        adults = table[table["votingage"] == settings.schema_of("persons").labels("votingage")[1]]
        for own, name in (("bounded_lower", "LOWER"), ("bounded_upper", "UPPER")):
            expected = adults[own].reindex(margins.index, fill_value=0)
            assert (margins[f"P0030001_{name}"] == expected).all()
        nursing = table[table["hhgq"] == settings.schema_of("persons").labels("hhgq")[3]]
        expected = nursing["bounded_upper"].reindex(margins.index, fill_value=0)
        assert (margins["P0050005_UPPER"] == expected).all()


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory):
    """The generated country's run, with its tables and margins, and its settings."""
    folder = tmp_path_factory.mktemp("country")
    (folder / "input").mkdir()
    generate_country(folder / "input")
    text = COUNTRY.replace('dataset = "demo-country"', 'dataset = "c"\nseed = 2')
    table = 'name = "TOTAL"\nuniverse = "dwellings"\nlevels = ["municipality"]'
    shapes = f'[[census.tables]]\n{table}\n[input]\ngeometry = "shapes"\n'
    text = text.replace("[input]\n", shapes, 1)
    (folder / "shapes").mkdir()
    (folder / "shapes" / "later.parquet").touch()
    (folder / "settings.toml").write_text(text, encoding="utf-8")
    settings = load(folder / "settings.toml")
    run, _ = run_declared(settings, folder / "run")
    RunTables(run, settings).write()
    write_margins(run, settings)
    return run, settings


def test_declared_tables_have_margins(country):
    run, settings = country
    for declared in settings.compiled_census.declared.tables:
        folder = run.unchecked_release / "tables"
        table = pd.read_parquet(folder / f"{declared.name}.parquet")
        margins = pd.read_parquet(folder / f"{declared.name}_margins.parquet")
        keys = [name for name in table if name != "count"]
        pd.testing.assert_frame_equal(table[keys], margins[keys])
        assert ("name" in table) == ("municipality" in declared.levels)
        if "name" in table:
            towns = table[["level", "code", "name", "longitude"]].drop_duplicates()
            of_region = towns["code"].str.startswith("Est%2F2.") & (towns["level"] != "region")
            assert list(towns["name"][of_region]) == [f"Est/2, town {n}" for n in range(1, 9)]
            assert towns["longitude"][of_region].iloc[-1] == "-0.2000"
            assert (towns["name"][towns["level"] == "region"] == "").all()
        assert (margins["lower"] <= margins["upper"]).all() and (margins["lower"] >= 0).all()
        inside = table["count"].between(margins["lower"], margins["upper"])
        assert inside.mean() > 0.7


def written(run: RunDirectory) -> dict[str, bytes]:
    """All files of margins."""
    found = (run.unchecked_release / "tables").glob("*_margins.*")
    return {path.name: path.read_bytes() for path in found}


@pytest.mark.slow
def test_missing_margins_are_written_again_in_every_byte(released, tmp_path: Path) -> None:
    made, settings = released
    whole = written(made)
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(made.root, run.root, symlinks=True)
    next(iter(run.unchecked_release.rglob("*_margins.csv"))).unlink()
    assert missing_margins(run, settings)
    assert write_margins(run, settings) == 1
    assert not missing_margins(run, settings) and written(run) == whole


@pytest.mark.slow
@pytest.mark.parametrize(("census", "is_kept"), covering(["released", "country"], [True, False]))
def test_tasks_write_margins_in_pieces(
    census: str,
    is_kept: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In every byte, whether the estimates are found or made again; nothing is left behind."""
    made, settings = request.getfixturevalue(census)
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(made.root, run.root, symlinks=True)
    for path in run.unchecked_release.rglob("*_margins.*"):
        path.unlink()
    assert margin_pieces(run, settings) == 1
    monkeypatch.setattr(files, "BLOCKS_PER_TASK", 5)
    of = margin_pieces(run, settings)
    assert of > 1
    if is_kept:
        assert keep_estimates(run, settings) and not keep_estimates(run, settings)
        monkeypatch.setattr(RunPosterior, "read", None)
    for number in range(of):
        assert missing_margins(run, settings)
        assert write_margins(run, settings, (number, of)) > 0
    assert not missing_margins(run, settings) and written(run) == written(made)
    assert write_margins(run, settings) == 0
    assert not list(run.root.glob("intervals/*/estimates.*"))
