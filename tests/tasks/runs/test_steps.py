"""Tests of the frame that all steps share."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.schemas.objects import TaskRun
from prefect.states import Failed, State
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused, MemoryFailed, StorageFailed, UnforeseenError
from spineflow.tasks.runs.handles import Artifact, Made, created, reused
from spineflow.tasks.runs.settings_files import dump_settings
from spineflow.tasks.runs.steps import artifact_of, step
from spineflow.tasks.runs.stores import StoreSilent
from spineflow.tasks.trips.settings import TripsSettings


@step("write", TripsSettings, run_name="write-{name}")
def write(run: RunDirectory, settings: TripsSettings, name: str) -> Made:
    """Write a file that names itself."""
    path = run.root / name
    if path.exists():
        return reused(path)
    path.write_text(name)
    return created(path)


@step("refuse", TripsSettings, run_name="refuse")
def refuse(run: RunDirectory, settings: TripsSettings) -> Made:
    """Raise what is public."""
    raise InputRefused("No.")


@step("fail", TripsSettings, run_name="fail", retried=False)
def fail(run: RunDirectory, settings: TripsSettings, canary: str) -> Made:
    """Raise what quotes data."""
    raise (OSError(28, canary) if canary == "disk" else ValueError(canary))


@step("solve", TripsSettings, run_name="solve-{level}")
def solve_level(run: RunDirectory, settings: TripsSettings, level: str) -> Made:
    """Ask for more memory than there is."""
    raise MemoryError("secret")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run that has frozen its settings, and has no more."""
    settings = TripsSettings.model_validate(
        {
            "input": {
                "table": str(tmp_path / "t.csv"),
                "levels": ["a"],
                "count": "n",
                "areas": str(tmp_path / "values.csv"),
            },
            "privacy": {"dataset": "d", "epsilon": "1", "delta": "1/1000"},
        }
    )
    RunDirectory(tmp_path).settings.write_text(dump_settings(settings))
    return tmp_path


def test_what_runs_out_of_memory_is_named_with_a_remedy(root: Path) -> None:
    with pytest.raises(MemoryFailed) as failed:
        solve_level.fn(str(root), "Tract")
    assert str(failed.value) == (
        "Memory ran out in solve_level Tract; give the run more, or fewer tasks at once "
        f"(--set run.workers=N) with 'spineflow resume {root}'."
    )


def test_what_is_there_is_reused(root: Path) -> None:
    first = write.fn(str(root), "a.txt")
    state = write.fn(str(root), "a.txt")
    assert isinstance(state, State) and state.name == "Reused" and state.is_completed()
    assert (state.data.path, state.data.digest, state.data.reused) == (
        first.path,
        first.digest,
        True,
    )


@pytest.mark.parametrize(("task", "retries"), [(write, 6), (refuse, 6), (fail, 0)])
def test_noise_is_never_retried(task, retries: int) -> None:
    assert task.retries == retries


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (StoreSilent("s3: the store does not answer."), 6),
        (StorageFailed("No space left on device at x."), 2),
        (InputRefused("No."), 0),
        (UnforeseenError("lost."), 0),
    ],
)
def test_stores_are_tried_again_for_minutes(error: Exception, attempts: int) -> None:
    """A full disk stays full; a store may be back after a pause."""
    asked = [
        write.retry_condition_fn(write, TaskRun.model_construct(run_count=n), Failed(data=error))
        for n in range(1, 7)
    ]
    assert asked == [True] * attempts + [False] * (6 - attempts)
    waits = write.retry_delay_seconds
    assert sum(waits[:2]) == 12 and 240 <= sum(waits) <= 600


def test_only_public_errors_leave_a_step(root: Path) -> None:
    with pytest.raises(InputRefused, match=r"^No\.$"):
        refuse.fn(str(root))
    with pytest.raises(UnforeseenError, match="^fail failed with ValueError") as lost:
        fail.fn(str(root), "canary")
    assert "canary" not in str(lost.value)
    with pytest.raises(StorageFailed, match="No space left"):
        fail.fn(str(root), "disk")


def test_confidential_files_get_no_digest(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.confidential.mkdir()
    secret = run.confidential / "counts.parquet"
    secret.write_text("1")
    assert artifact_of(run, created(secret), 0.0) == Artifact("confidential/counts.parquet")
    assert artifact_of(run, created(run.confidential), 0.0) == Artifact("confidential")
    assert artifact_of(run, reused("s3://place/x"), 1.0) == Artifact("s3://place/x", "", 1.0, True)
