"""Releases from data frames: the same runs as the command's, under a ledger."""

from __future__ import annotations

import stat
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.flows.household_input import write_households
from tests.library import towns

NO_NOISE = {"dataset": "made-up", "infinite": True}


def released(folder: Path, residents: pd.DataFrame, run: str = "run", **more) -> spineflow.Run:
    return spineflow.topdown(
        {"residents": residents, "areas": towns.areas()},
        towns.settings(**more.pop("sections", {})),
        folder / run,
        **{"dataset": "town", "ledger": folder / "ledger.db", **more},
    )


def test_a_release_is_charged_once_and_returned_again(town_folder: Path) -> None:
    before = spineflow.open_run(town_folder / "run").measurements()
    spent = spineflow.ledger(town_folder / "ledger.db").set_index("dataset").loc["town"]
    assert (spent["rho"], spent["cap"], spent["remaining"]) == (1.0, 1.5, 0.5)
    assert 0 < spent["exact_epsilon"] < 0.97 * spent["epsilon"]
    again = released(town_folder, towns.residents())
    pd.testing.assert_frame_equal(again.measurements(), before)
    assert spineflow.ledger(town_folder / "ledger.db")["rho"].tolist() == [1.0]
    assert (again.is_private, again.is_confidential, again.dataset) == (True, True, "town")


def test_the_frames_lie_in_the_confidential_folder(town_folder: Path) -> None:
    run = town_folder / "run"
    assert stat.S_IMODE((run / "confidential").stat().st_mode) == 0o700
    kept = pd.read_parquet(run / "confidential" / "input" / "residents.parquet")
    assert len(kept) == towns.RESIDENTS
    assert [p.name for p in run.rglob("residents*.parquet") if "confidential" not in p.parts] == []


def test_another_table_needs_another_directory(town_folder: Path) -> None:
    with pytest.raises(spineflow.SpineflowError, match="residents is not the table that the run"):
        released(town_folder, towns.residents(seed=2))


def test_the_cap_and_the_name_of_the_dataset_are_held(town_folder: Path) -> None:
    with pytest.raises(spineflow.SpineflowError, match="cap"):
        released(town_folder, towns.residents(), run="second")
    half = towns.settings()["budget"]["residents"] | {"rho": Fraction(1, 4)}
    with pytest.raises(spineflow.SpineflowError, match="'town'"):
        released(
            town_folder,
            towns.residents(),
            run="renamed",
            dataset="village",
            sections={"budget": {"residents": half}},
        )
    assert spineflow.ledger(town_folder / "ledger.db")["rho"].sum() == 1.0
    assert not list(town_folder.glob("[sr]*e*d/measurements/**/*.parquet"))


def test_a_table_that_is_refused_can_be_mended(tmp_path: Path) -> None:
    spineflow.make_ledger(tmp_path / "ledger.db", 2)
    broken = towns.residents().assign(sex="x")
    with pytest.raises(spineflow.SpineflowError, match=r"^the table residents: "):
        released(tmp_path, broken)
    assert spineflow.ledger(tmp_path / "ledger.db").empty
    assert released(tmp_path, towns.residents()).status == "complete"


@pytest.mark.parametrize(
    ("tables", "sections", "told"),
    [
        ({"residents": [1, 2]}, {}, "residents is no data frame"),
        ({"../residents": pd.DataFrame()}, {}, "is no name of a table"),
        ({"homes": pd.DataFrame({"a": [1]})}, {}, "input"),
        ({"residents": pd.DataFrame({"age": [1, "old"]})}, {}, "the column age has values of more"),
        ({}, {"budget": {"residents": {"rho": 0.5}}}, "must be an exact fraction in quotes"),
        ({}, {"budgets": {}}, "unknown setting 'budgets'"),
        ({}, {"input": {"geometry": "nowhere.parquet"}}, r"input\.geometry"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(
    tmp_path: Path, tables, sections, told: str
) -> None:
    own = {"residents": towns.residents(), "areas": towns.areas()} | tables
    with pytest.raises(spineflow.SpineflowError, match=told):
        spineflow.topdown(own, towns.settings(**sections), tmp_path / "run", dataset="town")
    assert not list(tmp_path.iterdir())


def test_sizes_of_groups_from_frames(tmp_path: Path) -> None:
    """Without noise they are those of the table, read back as measurements, too."""
    write_dataset(tmp_path, census_like(groups=800, counties=4, states=2, largest=12))
    sizes = pd.read_parquet(tmp_path / "sizes.parquet")
    regions = pd.read_csv(tmp_path / "regions.csv", dtype=str, keep_default_na=False)
    run = spineflow.group_sizes(
        {"sizes": sizes, "regions": regions},
        {
            "input": {"confidential": False},
            "privacy": NO_NOISE,
            "mechanism": {"name": "cumulative_dp", "largest_size": 12},
            "invariants": {"groups": True},
        },
        tmp_path / "run",
    )
    truth = sizes[sizes["size"] <= 12].groupby("size")["count"].sum()
    table = run.table("group_sizes").query("level == 'nation'").set_index("size")["count"]
    assert table[table > 0].to_dict() == truth[truth > 0].to_dict()
    measured = run.measurements("nation").set_index("size")["value"]
    assert measured.diff().fillna(measured.iloc[0]).astype(int).to_dict() == table.to_dict()
    cells = run.estimates("nation").set_index("size")["count"]
    assert cells.to_dict() == truth[truth > 0].to_dict()
    assert (run.errors["absolute_error"] == 0).all()


def test_trips_from_frames(tmp_path: Path) -> None:
    country = CountrySize(regions=2, provinces=4, municipalities=12, pairs=40, commuters=900)
    generate_country(tmp_path, country, seed=4)
    (file,) = tmp_path.glob("*.parquet")
    trips, areas = pd.read_parquet(file), pd.read_csv(tmp_path / "areas.csv", dtype=str)
    columns = {"origin": "origin", "destination": "destination", "count": "commuters"}
    run = spineflow.trips(
        {"trips": trips, "areas": areas.fillna("")},
        {
            "input": columns | {"confidential": False},
            "privacy": NO_NOISE,
            "mechanism": {"name": "inftda"},
        },
        tmp_path / "run",
    )
    table = run.table("trips").groupby(["origin", "destination"])["count"].sum()
    assert table.to_dict() == trips.groupby(["origin", "destination"])["commuters"].sum().to_dict()
    levels = run.measurements()["geolevel"].unique()
    finest = run.measurements(levels[-1])
    assert finest["value"].sum() == trips["commuters"].sum()
    assert run.estimates(levels[-1])["count"].sum() == trips["commuters"].sum()


def test_detailed_groups_from_files_and_frames(tmp_path: Path) -> None:
    """Measured tables are decoded: a group's cells of sex by age are those of its total."""
    generate_specification(tmp_path / "params", states=["44"])
    codes = list(read_specification(str(tmp_path / "params")).names)
    generate_persons(tmp_path / "data", codes, persons=400, tracts=2, states=["44"], seed=2)
    run = spineflow.detailed_groups(
        {},
        {
            "input": {
                "parameters": tmp_path / "params",
                "data": tmp_path / "data",
                "confidential": False,
            },
            "privacy": {"dataset": "groups", "seed": 3},
        },
        tmp_path / "run",
    )
    found = run.measurements()
    assert {"region_id", "iteration_code", "sex", "age", "value"} < set(found.columns)
    rows = found.groupby(["geolevel", "region_id", "iteration_code", "table"]).size()
    by_table = {table: set(own) for table, own in rows.groupby("table")}
    assert by_table == {
        table: {n} for table, n in {0: 1, 1: 8, 2: 18, 3: 46}.items() if table in by_table
    }
    cells = found[found["table"] > 0]
    assert set(cells["sex"].unique()) <= {"male", "female"}
    assert found[found["table"] == 0]["age"].isna().all()
    assert set(run.tables) == {"population_groups", "t1", "t2"}
    assert len(run.table("t1")) and run.table("t1")["REGION_ID"].map(type).eq(str).all()
    with pytest.raises(spineflow.SpineflowError, match="no estimates apart from"):
        run.estimates()


def test_people_in_households_from_frames(tmp_path: Path) -> None:
    """Without noise, and with nobody left out, everybody who lives in a household is counted."""
    write_households(tmp_path)
    tables = {name: pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("persons", "units")}
    run = spineflow.supplemental_dhc(
        tables,
        {
            "preset": "supplemental_dhc_2020_us",
            "input": {"geography": tmp_path / "grfc.txt", "confidential": False},
            "mechanism": {"truncation": {"PH2": 100}},
            "privacy": NO_NOISE,
        },
        tmp_path / "run",
    )
    persons, units = tables["persons"], tables["units"]
    households = units.loc[units["RTYPE"].astype(int).eq(2), "MAFID"]
    rows = run.table("supplemental_dhc")
    whole = rows[(rows["table"] == "PH2") & (rows["level"] == "US") & (rows["cell"] == 1)]
    assert whole["estimate"].tolist() == [persons["MAFID"].isin(households).sum()]
    found = run.measurements("State")
    measured = found[found["measure"] == "PH2"]
    assert measured["value"].sum() == whole["estimate"].iloc[0]
    assert set(run.tables) == {"supplemental_dhc"}
