"""A generated county whose spine is cut into many small shards, laid out without Prefect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROWS_PER_GROUP = 64


@pytest.fixture(scope="session")
def cut_county(county: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run directory up to shards and constraints, and its settings; not to be changed."""
    from spineflow.tasks.census import histograms
    from spineflow.tasks.products.product import PRESETS
    from spineflow.tasks.runs.settings_files import load_settings
    from spineflow.tasks.topdown.checks.replicate import lay_out, read_dataset
    from spineflow.tasks.topdown.settings import TopdownSettings
    from spineflow.tasks.topdown.spine import files

    from tests.flows.in_process import judged_once

    folder = tmp_path_factory.mktemp("cut-county")
    file = folder / "settings.toml"
    tables = {"persons": "persons.parquet", "units": "units.parquet", "geography": "grfc.txt"}
    lines = [f'{key} = "{county / table}"' for key, table in tables.items()]
    text = 'preset = "pl94_2020_us"\n[input]\nconfidential = false\n' + "\n".join(lines)
    file.write_text(text + '\n[privacy]\ndataset = "county"\nseed = 1\n')
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(histograms, "ROWS_PER_GROUP", ROWS_PER_GROUP)
        changed.setattr(files, "VALUES_PER_SHARD", 30_000)
        with judged_once():
            dataset = read_dataset(settings, folder / "data")
        run = lay_out(dataset, settings, folder / "run")
    return run, settings


@pytest.fixture
def judged_once() -> Iterator[None]:
    """Have our own code alone judge inputs, where nothing is asked of what Great Expectations says
    of them; see `tests.flows.in_process`."""
    from tests.flows.in_process import judged_once

    with judged_once():
        yield
