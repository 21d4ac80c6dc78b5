"""What the noise guarantees exactly is kept as it was worked out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.release import exact_losses
from spineflow.tasks.topdown.release.certificate import exact_figures, losses_of
from spineflow.tasks.topdown.release.exact_losses import keep_loss, loss_file


@pytest.mark.soak(2)
@pytest.mark.slow
def test_figures_are_the_same_from_what_is_kept(
    cut_county, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, seeded = cut_county
    assert not seeded.is_private, "noise that can be repeated protects nobody"
    privacy = seeded.privacy.model_copy(update={"seed": None})
    settings = seeded.model_copy(update={"privacy": privacy})
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(made.root / "spine", run.root / "spine")
    worked_out = exact_figures(run, settings, losses_of(run, settings))
    assert settings.is_private and worked_out
    for universe in settings.run.universes:
        assert not loss_file(run, universe).exists()
        keep_loss(run, settings, universe)
        assert loss_file(run, universe).exists()
        assert loss_file(run, universe).exists()
    monkeypatch.setattr(exact_losses, "exact_loss", None)
    assert repr(exact_figures(run, settings, losses_of(run, settings))) == repr(worked_out)


def test_what_is_not_known_is_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_county
) -> None:
    made, settings = cut_county
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(made.root / "spine", run.root / "spine")
    monkeypatch.setattr(exact_losses, "exact_loss", lambda *_: None)
    for universe in settings.run.universes:
        keep_loss(run, settings, universe)
    monkeypatch.setattr(exact_losses, "exact_loss", None)
    for universe in settings.run.universes:
        assert exact_losses.loss_of(run, settings, universe) is None
