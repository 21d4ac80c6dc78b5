"""One population of three products of a small generated county, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.runs.directory import RunDirectory


@pytest.mark.slow
def test_persons_and_households_become_one_population(population_run: RunDirectory) -> None:
    run = population_run.root
    persons = pd.read_parquet(run / "release" / "population_persons.parquet")
    units = pd.read_parquet(run / "release" / "population_units.parquet")
    occupied = units[units["occupied"].eq(True)]
    members = persons.groupby(["geocode", "unit"]).size()
    assert members.to_dict() == occupied.set_index(["geocode", "unit"])["size"].to_dict()
    heads = persons[persons["relationship"] == "householder"]
    assert sorted(heads["unit"]) == sorted(occupied["unit"])
    summary = json.loads((run / "release" / "population.json").read_text())
    assert summary["blocks"] == occupied["geocode"].nunique()
    checks = json.loads((run / "validation" / "checks.json").read_text())
    assert checks["passed"] and len(checks["checks"]) == 4
    certificate = (run / "release" / "certificate.md").read_text(encoding="utf-8")
    assert "population_persons.parquet" in certificate
    manifest = json.loads((run / "manifest.json").read_text())
    assert "population" in manifest["stages"]
    _check_published(run, run.parent / "input" / "published")


def _check_published(run: Path, place: Path) -> None:
    """The population is copied beside the three releases, each under a listing of its own."""
    listings = {
        path.relative_to(place).as_posix(): json.loads(path.read_text(encoding="utf-8"))
        for path in (*place.glob("*.json"), *place.glob("dhc-*/*.json"))
    }
    assert set(listings) == {
        "products.json", "topdown.json", "dhc-units/topdown.json", "dhc-persons/topdown.json"
    }  # fmt: skip
    files = {file["name"] for file in listings["products.json"]["files"]}
    assert files >= {"population_persons.parquet", "population_units.parquet", "population.json"}
    copy = place / listings["products.json"]["folder"] / "population_persons.parquet"
    original = run / "release" / "population_persons.parquet"
    assert copy.read_bytes() == original.read_bytes()
