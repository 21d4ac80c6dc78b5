from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import read_dataset, study, with_estimator
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


@pytest.mark.soak(4)
@pytest.mark.slow
def test_a_study_repeats_and_shares_noise_between_estimators(settings, tmp_path: Path):
    infinite = settings.model_copy(
        update={"privacy": settings.privacy.model_copy(update={"infinite": True})}
    )
    names = ("topdown", "full_information", "block_by_block")
    choices = {name: with_estimator(settings, name) for name in names} | {"exact": infinite}
    frames = [
        pd.concat(study(choices, range(2), tmp_path / folder), ignore_index=True)
        for folder in ("one", "two")
    ]
    pd.testing.assert_frame_equal(*frames)
    frame = frames[0]
    assert list(dict.fromkeys(frame["choice"])) == list(choices)
    assert list(dict.fromkeys(frame["seed"])) == [0, 1]
    detailed = (
        frame[frame["query"] == "detailed"].set_index(["choice", "seed", "geolevel"]).sort_index()
    )
    error = detailed["mean_absolute_error"]
    assert (error["exact"] == 0).all()
    assert (error["block_by_block"] > 0).any()
    assert error["topdown", 0].tolist() != error["topdown", 1].tolist()
    # Nothing of the replicates is left but what all of them are built on.
    left = {path.name for path in (tmp_path / "one").iterdir()}
    assert left == {"dataset", "layout-0", "layout-1", "layout-2"}
