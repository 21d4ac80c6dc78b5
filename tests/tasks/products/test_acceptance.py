"""A release does not wait for a comparison that fails, and says so until one succeeds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from spineflow.tasks.products.acceptance import compare_release, publish_release, warnings_of
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused

SECRET = "the truth is 42"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.checks.mkdir(parents=True)
    run.confidential.mkdir()
    return run


def fails(error: Exception):
    def compare() -> None:
        raise error

    return compare


@pytest.mark.parametrize("is_private", [True, False])
def test_what_failed_is_told_without_its_words(run: RunDirectory, is_private: bool) -> None:
    settings = SimpleNamespace(is_private=is_private)
    assert warnings_of(run) == ()
    assert not compare_release(run, settings, fails(ValueError(SECRET)))
    (warning,) = warnings_of(run)
    assert "The comparison with the truth" in warning and "does not depend on it" in warning
    public = (run.checks / "warnings.json").read_text()
    assert SECRET not in public
    assert (json.loads(public).get("stamp") == "NOT PRIVATE") == (not is_private)
    kept = "".join(path.read_text() for path in run.confidential.rglob("*.txt"))
    assert SECRET in kept
    assert compare_release(run, settings, lambda: None)
    assert warnings_of(run) == () and compare_release(run, settings, lambda: None)


@pytest.mark.parametrize("error", [InputRefused("do this"), OSError(28, "full")])
def test_what_can_be_done_about_or_may_pass_is_raised(run: RunDirectory, error: Exception) -> None:
    with pytest.raises(type(error)):
        compare_release(run, SimpleNamespace(is_private=True), fails(error))
    assert warnings_of(run) == ()


def test_an_error_of_no_system_call_is_told_as_any_other(run: RunDirectory) -> None:
    assert not compare_release(run, SimpleNamespace(is_private=True), fails(OSError(SECRET)))
    assert len(warnings_of(run)) == 1


def test_a_release_appears_in_one_step_and_once(run: RunDirectory) -> None:
    run.unchecked_release.mkdir()

    def complete() -> None:
        assert not run.release.exists()
        (run.unchecked_release / "last").touch()

    publish_release(run, complete)
    assert (run.release / "last").exists() and not run.unchecked_release.exists()
    publish_release(run, fails(AssertionError("it is there already")))
