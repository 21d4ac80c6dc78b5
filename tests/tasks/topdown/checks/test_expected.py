"""Errors to be expected of a release, from the release alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.accuracy.compared import compute_figures
from spineflow.tasks.topdown.checks.replicate import (
    estimate,
    expected_errors,
    lay_out,
    measure,
    read_dataset,
    with_seed,
)
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.settings import TopdownSettings

PERSONS_ONLY = '[run]\nuniverses = ["persons"]\n'


def test_expected_errors_read_the_release_alone_and_are_as_large_as_its_own(
    tmp_path: Path, public_settings: str
) -> None:
    generate_county(tmp_path, persons=1_000, seed=2)
    (tmp_path / "settings.toml").write_text(public_settings + PERSONS_ONLY, encoding="utf-8")
    settings = load_settings(TopdownSettings, tmp_path / "settings.toml", presets=PRESETS)
    layout = lay_out(read_dataset(settings, tmp_path / "data"), settings, tmp_path / "layout")
    seeded = with_seed(settings, 100)
    run = estimate(measure(layout, seeded, tmp_path / "measured"), seeded, tmp_path / "run")
    own = compute_figures(run, seeded).errors
    run.confidential.unlink()
    own = own[(own["answer"] == "all") & (own["size_class"] == "all")]
    secret = settings.input.model_copy(update={"confidential": True})
    confidential = settings.model_copy(update={"input": secret})
    found = expected_errors(run, confidential, 2, tmp_path / "simulated")
    found = found[found["size_class"] == "all"].set_index(["quantity", "level"])
    compared = 0
    for row in own.itertuples():
        expected = found.loc[(row.quantity, row.level)]
        same = pytest.approx(row.predicted_standard_deviation, rel=1e-6, nan_ok=True)
        assert expected["predicted_standard_deviation"] == same
        if row.level == "block":
            compared += 1
            # Of some fifty blocks, in three draws.
            ratio = expected["mean_absolute_error"] / row.mean_absolute_error
            assert 0.5 < ratio < 2.0, (row.quantity, ratio)
    assert compared > 3


def test_a_run_without_noise_has_no_errors_to_expect(tmp_path: Path, public_settings: str) -> None:
    (tmp_path / "settings.toml").write_text(public_settings + PERSONS_ONLY, encoding="utf-8")
    settings = load_settings(
        TopdownSettings,
        tmp_path / "settings.toml",
        presets=PRESETS,
        overrides=["privacy.infinite=true"],
    )
    with pytest.raises(InputRefused, match="releases with noise"):
        expected_errors(RunDirectory(tmp_path), settings, 1, tmp_path / "simulated")
