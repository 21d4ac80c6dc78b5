"""A run of the real state without noise: its tables are those of its input."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import prepare, run_stages
from spineflow.flows.topdown import PRODUCT
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy.figures import read_figures
from spineflow.tasks.topdown.release.tabulations.published import published_blocks, read_published

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.slow]

MOST_SECONDS = {"tables": 30, "accuracy": 60}


@pytest.fixture(scope="module")
def state(shared: Path, tmp_path_factory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("state")
    inputs = shared / "data" / "ri2010"
    settings_file = folder / "settings.toml"
    settings_file.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{inputs / "persons.parquet"}"\n'
        f'units = "{inputs / "units.parquet"}"\ngeography = "{inputs / "grfc.txt"}"\n'
        'confidential = false\n[privacy]\ndataset = "state"\ninfinite = true\n'
    )
    settings = PRODUCT.load(settings_file)
    run = prepare(settings, folder / "run")
    run_stages(PRODUCT, run, settings)
    return run


def test_every_summary_level_is_what_sql_counts_from_the_input(
    state: RunDirectory, shared: Path, sql_tables
) -> None:
    for stem, expected in sql_tables(shared / "data" / "ri2010").items():
        found = pq.read_table(state.release / "tables" / f"{stem}.parquet").to_pandas()
        assert found["GEOCODE"].tolist() == expected.index.tolist(), stem
        wrong = found[list(expected)].to_numpy() != expected.to_numpy()
        assert not wrong.any(), (stem, expected.columns[wrong.any(axis=0)].tolist())


def test_legacy_files_hold_the_same_blocks(state: RunDirectory) -> None:
    blocks = published_blocks(read_published(state.release / "pl94171"))
    tables = pq.read_table(state.release / "tables" / "750_block.parquet")
    assert len(blocks.geography) == tables.num_rows == 25_181
    assert (blocks.persons.sum(axis=1) == tables["P0010001"].to_numpy()).all()
    assert (blocks.occupancy[:, 1] == tables["H0010002"].to_numpy()).all()
    assert (blocks.hhgq[:, 5] == tables["P0050008"].to_numpy()).all()


def test_no_error_and_the_budgets_deviation_beside_it(state: RunDirectory) -> None:
    errors = read_figures(state).errors
    assert (errors["largest"] == 0).all() and (errors["bias"] == 0).all()
    assert (errors["predicted_standard_deviation"] >= 0).all()
    tracts = errors[(errors["level"] == "tract") & (errors["quantity"] == "total population")]
    assert 1 < tracts["predicted_standard_deviation"].iloc[0] < 5


def test_tables_and_report_take_no_longer_than_promised(state: RunDirectory) -> None:
    stages = state.read_manifest()["stages"]
    for stage, most in MOST_SECONDS.items():
        assert stages[stage]["seconds"] <= most
