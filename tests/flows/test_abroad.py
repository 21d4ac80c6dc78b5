"""A census of an office abroad, from the files on its disk to a release, by the commands alone."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.flows.cli import main

from tests.tasks.topdown.abroad import write_census

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


def test_from_files_of_another_country_to_a_release(tmp_path: Path, capsys) -> None:
    settings = str(write_census(tmp_path / "input"))
    assert main(["check", "topdown", settings]) == 0
    shown = capsys.readouterr().out
    assert "Bevölkerung.csv: text separated by semicolons, decimal commas, ISO8859-1" in shown
    assert "The settings and the input are in order." in shown

    asked = 'budget.people.queries.other."age * Geschlecht"="1/4"'
    assert main(["budget", "topdown", settings, "--json", "--set", asked]) == 0
    costs = json.loads(capsys.readouterr().out)
    assert "Geschlecht * age" in json.dumps(costs, ensure_ascii=False)

    folder = tmp_path / "run"
    assert main(["run", "topdown", settings, "--run-dir", str(folder)]) == 0, capsys.readouterr()
    run = spineflow.open_run(folder)
    assert run.status == "complete"
    assert run.checks["passed"].all()
    table = run.table("Alter")
    assert table["age"].cat.ordered
    assert table["Geschlecht"].cat.categories.tolist() == ["weiblich", "männlich"]
    people = pd.read_csv(
        tmp_path / "input" / "Bevölkerung.csv", sep=";", encoding="latin-1", dtype=str
    )
    regions = table[table["level"] == "Region"].groupby("code")["count"].sum()
    truth = people.groupby("Region").size()
    assert regions.to_dict() == {"S%C3%BCd": truth["Süd"], "Stadt": truth["Stadt"]}
    infants = run.microdata("people")
    assert not ((infants["age"] == "0-14") & (infants["french"] == "yes")).any()
    assert infants["age"].cat.ordered
    areas = pd.DataFrame({"area": ["coast", "coast"], "block": ["g4", "g5"]})
    coast = run.make_intervals("french*age", areas=areas, universe="people")
    assert coast["age"].cat.ordered
    assert len(coast) == 10
    by_query = run.measurements("Region", universe="people", query="minor*french")
    assert set(by_query["query"]) == {"french * minor"}
    with pytest.raises(spineflow.SpineflowError, match="of no Gemeinde"):
        run.make_intervals("total", areas=areas.replace("g5", "g7"), universe="people")
    with pytest.raises(spineflow.SpineflowError, match="a geolevel or areas, one of them"):
        run.make_intervals("total", universe="people")
