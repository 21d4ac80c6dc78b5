"""A search on a town of a declared census, whose trials take a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.replicates import AnyTuneSettings
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.study.settings import TuneSettings

from tests.flows.in_process import judged_once
from tests.library import towns


@pytest.fixture(scope="session")
def town_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the residents and areas of a town."""
    folder = tmp_path_factory.mktemp("town-tables")
    towns.residents().to_parquet(folder / "residents.parquet")
    towns.areas().to_csv(folder / "areas.csv", index=False)
    return folder


@pytest.fixture(scope="session")
def town_search(town_tables: Path) -> TuneSettings:
    """Settings of a search for the budget of the residents, with two variants."""
    own = towns.settings()
    shares = {"country": "1/10", "region": "1/10", "section": "4/5"}
    even = {"budget": {"residents": {"geolevels": shares}}}
    tree = {
        "input": {
            "residents": str(town_tables / "residents.parquet"),
            "areas": str(town_tables / "areas.csv"),
            "confidential": False,
        },
        "privacy": {"dataset": "town"},
        "topdown": own,
        "variants": {"as it is": {}, "sections first": even},
        "criterion": {
            "universe": "residents",
            "kind": "error",
            "quantity": "total",
            "level": "section",
            "at_most": 5.0,
        },
        "search": {"method": "total", "replicates": 2, "lowest": "1/10", "highest": "10"},
    }
    with judged_once():
        return load_settings(AnyTuneSettings, tree, presets=PRESETS).resolved()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run directory of a search whose trials have taken some seconds."""
    run = RunDirectory(tmp_path)
    run.write_manifest(
        {
            "run_id": "run-1",
            "created": "2020-04-01T00:00:00Z",
            "settings_digest": "s" * 64,
            "code_version": "c0de",
            "stages": {
                "trial 1": {"status": "complete", "seconds": 2.0},
                "trial 2": {"status": "complete", "seconds": 3.0},
            },
        }
    )
    return run
