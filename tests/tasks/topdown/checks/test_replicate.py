from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import read_dataset
from spineflow.tasks.topdown.settings import TopdownSettings


@pytest.fixture(scope="module")
def settings(county: Path, tmp_path_factory: pytest.TempPathFactory) -> TopdownSettings:
    folder = tmp_path_factory.mktemp("settings")
    text = (
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        'confidential = false\n[privacy]\ndataset = "county"\n[run]\nuniverses = ["units"]\n'
    )
    (folder / "settings.toml").write_text(text)
    return load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)


def test_confidential_input_is_refused(settings, tmp_path: Path):
    given = settings.input.model_copy(update={"confidential": True})
    confidential = settings.model_copy(update={"input": given})
    with pytest.raises(InputRefused, match="no ledger records"):
        read_dataset(confidential, tmp_path / "dataset")
