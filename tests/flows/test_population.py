"""One population of three products of a small generated county, by the command line."""

from __future__ import annotations

import html
import json
import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pandas as pd
import pytest
from spineflow.flows.products import restore
from spineflow.flows.products_settings import ProductsSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings

UNCHANGED = SimpleNamespace(words=SimpleNamespace(restore=lambda *_: None), report=lambda *_: None)
"""Stands for a product whose own reports stay as they are."""


@pytest.mark.slow
def test_persons_and_households_become_one_population(
    population_run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # What is written again of every part alone is tested elsewhere.
    monkeypatch.setattr("spineflow.flows.products.product", lambda _: UNCHANGED)
    _check_report(population_run, summary["blocks_changed"])


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


def _check_report(run: RunDirectory, n_changed: int) -> None:
    """The page tells how far persons and households agree; the truth only where all may see it."""
    page = run.report.read_text(encoding="utf-8")
    tables = _agreement_tables(page)
    assert list(tables[0]) == ["apart", "one population", "truth"]
    by_number = tables[0].set_axis(tables[0].index.str[:2], axis=0)
    for made in ("one population", "truth"):
        wanted = {"M1": 0, "M3": 100, "M4": 0, "M5": 100, "M6": 100, "M7": 100}
        assert by_number.loc[list(wanted), made].to_dict() == wanted
    assert by_number.loc["M8", "one population"] == 100
    assert by_number["apart"][["M5", "M6", "M7"]].max() < 100
    assert by_number.loc["M9"].notna().all(axis=None)
    assert [table.index.name for table in tables] == [
        "all blocks, %", "block, %", "block group, %", "tract, %", "county, %"
    ]  # fmt: skip
    for table in tables[1:]:
        assert (
            (table.loc[table.index.str[:2].isin(["M3", "M5", "M6", "M7", "M8"])])["one population"]
            .eq(100)
            .all()
        )
        assert table["one population"][table.index.str[:2].isin(["M1", "M4"])].max() == 0
    assert f"<td>{n_changed}</td>" in page.replace(' class="number"', "")
    settings = frozen_settings(ProductsSettings, run.settings)
    units = settings.products.chosen()["dhc-units"]
    hidden = units.model_copy(
        update={"input": units.input.model_copy(update={"confidential": True})}
    )
    chosen = settings.products.model_copy(update={"dhc_units": hidden})
    restore(run, settings.model_copy(update={"products": chosen}))
    (first, *_) = _agreement_tables(run.report.read_text(encoding="utf-8"))
    assert list(first) == ["apart", "one population"]
    restore(run, settings)  # Others read the run too.


def _agreement_tables(page: str) -> list[pd.DataFrame]:
    """The tables of measures of a page, from what is downloaded of them."""
    found = re.findall(r'href="data:text/csv;charset=utf-8,([^"]*)"', page)
    texts = [unquote(html.unescape(one)) for one in found]
    tables = [pd.read_csv(StringIO(text), comment="#") for text in texts]
    return [table.set_index(table.columns[0]) for table in tables if "one population" in table]
