"""A run of real tables without noise: those of its release are those of its input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy.errors import read_figures
from spineflow.tasks.topdown.release.tabulations.published import published_blocks, read_published

pytestmark = pytest.mark.slow


def test_its_release_is_that_of_its_input(
    real_without_noise: RunDirectory, real_tables: Path, sql_tables
) -> None:
    """One test, since of the whole state a run takes half a minute, and by chance one is chosen."""
    legacy_files_hold_the_same_blocks(real_without_noise, real_tables)
    figures_have_no_error_and_the_budgets_deviation_beside_it(real_without_noise)
    # The last, since without DuckDB it is skipped.
    every_summary_level_is_what_sql_counts(real_without_noise, sql_tables(real_tables))


def every_summary_level_is_what_sql_counts(
    run: RunDirectory, counted: Mapping[str, pd.DataFrame]
) -> None:
    for stem, expected in counted.items():
        found = pq.read_table(run.release / "tables" / f"{stem}.parquet").to_pandas()
        assert found["GEOCODE"].tolist() == expected.index.tolist(), stem
        wrong = found[list(expected)].to_numpy() != expected.to_numpy()
        assert not wrong.any(), (stem, expected.columns[wrong.any(axis=0)].tolist())


def legacy_files_hold_the_same_blocks(run: RunDirectory, inputs: Path) -> None:
    blocks = published_blocks(read_published(run.release / "pl94171"))
    tables = pq.read_table(run.release / "tables" / "750_block.parquet")
    n_blocks = len((inputs / "grfc.txt").read_text().splitlines()) - 1
    assert len(blocks.geography) == tables.num_rows == n_blocks
    assert (blocks.persons.sum(axis=1) == tables["P0010001"].to_numpy()).all()
    assert (blocks.occupancy[:, 1] == tables["H0010002"].to_numpy()).all()
    assert (blocks.hhgq[:, 5] == tables["P0050008"].to_numpy()).all()


def figures_have_no_error_and_the_budgets_deviation_beside_it(run: RunDirectory) -> None:
    errors = read_figures(run).errors
    assert (errors["largest"] == 0).all() and (errors["bias"] == 0).all()
    assert (errors["predicted_standard_deviation"] >= 0).all()
    tracts = errors[(errors["level"] == "tract") & (errors["quantity"] == "total population")]
    assert 1 < tracts["predicted_standard_deviation"].iloc[0] < 5
