"""Forecasts of a generated county: margins, the page and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import with_estimator
from spineflow.tasks.topdown.design.forecast import BLOCKS, FULL, forecasts
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.ingest import public_tables
from spineflow.tasks.topdown.settings import TopdownSettings

PERSONS_ONLY = '[run]\nuniverses = ["persons"]\n'


@pytest.fixture
def settings(tmp_path: Path, public_settings: str) -> TopdownSettings:
    """Settings of the persons of a county, in the folder of its tables."""
    generate_county(tmp_path, persons=1_500, seed=5)
    file = tmp_path / "settings.toml"
    file.write_text(public_settings + PERSONS_ONLY, encoding="utf-8")
    return load_settings(TopdownSettings, file, presets=PRESETS)


def margins_of(settings: TopdownSettings) -> dict[tuple[str, str], dict[str, float | None]]:
    tables = public_tables(settings)
    found = [one for name in settings.run.universes for one in forecasts(settings, name, tables)]
    return {(row.query, row.level): row.margins for row in found}


@pytest.mark.slow
def test_margins_with_blocks_alone_are_sums_of_those_of_blocks(
    tmp_path: Path, settings: TopdownSettings
) -> None:
    margins = margins_of(settings)
    whole, block = margins["total", "state"][BLOCKS], margins["total", "block"][BLOCKS]
    assert margins["total", "state"][FULL] == 0
    n_blocks = pd.read_csv(tmp_path / "grfc.txt", sep="|").shape[0]
    # Every block is measured alike, but those with group quarters have more cells.
    assert whole is not None and block is not None
    assert 0.5 * n_blocks < (whole / block) ** 2 <= n_blocks
    alone = with_estimator(settings, BLOCKS)
    assert np.isclose(margins_of(alone)["total", "state"][BLOCKS], whole)
