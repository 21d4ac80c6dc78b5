"""A finished run on other workers, from its record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.replay import recorded
from spineflow.tasks.runs.work import Task, append

from tests.tasks.runs.test_work import BEGAN, task


def shard(n: int, **other: object) -> Task:
    """Ten seconds of measurement, four of them computing, half a second after the one before."""
    fields = {
        "begun": 0.0,
        "started": 0.5 + 10.5 * n,
        "seconds": 10.0,
        "ended": 10.5 * (n + 1),
        "cpu": 4.0,
        "after": (),
    }
    return task(f"measure persons Block {n:05d}", **{**fields, **other})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Four shards one after the other, and a check two seconds later that reads 600 bytes."""
    run = RunDirectory(tmp_path)
    told = {"name": "check", "stage": "checks", "step": "check", "wave": 4}
    check = replace(shard(4), **told, read=500, written=100, started=44.0, ended=54.0)
    append(run, BEGAN, *map(shard, range(4)), check)
    stages = dict.fromkeys(("persons measure Block", "checks"), {})
    run.manifest.write_text(json.dumps({"status": "complete", "stages": stages}))
    return run


def test_the_recorded_run_takes_what_it_took(run: RunDirectory) -> None:
    replay = recorded(run)
    assert (replay.per_task, replay.per_wave) == pytest.approx((0.5, 2.0))
    assert replay.wall == pytest.approx(54.0)
    assert replay.on(1).seconds == pytest.approx(5 * 10.5 + 2.0)


def test_more_workers_share_the_shards_and_wait_for_the_check(run: RunDirectory) -> None:
    replay = recorded(run)
    assert replay.on(4).seconds == pytest.approx(10.5 + 2.0 + 10.5)
    assert replay.shortest == replay.on(4).seconds
    assert dict(replay.critical) == pytest.approx({"persons measure Block": 10.5, "checks": 10.5})
    assert replay.on(4).busy == pytest.approx(5 * 10.5 / (4 * 23.0))


def test_a_larger_run_has_more_shards_and_a_longer_check(run: RunDirectory) -> None:
    replay = recorded(run, times=3)
    assert len(replay.jobs) == 13
    assert replay.on(12).seconds == pytest.approx(10.5 + 2.0 + 30.5)


def test_four_workers_on_one_processor_share_it(run: RunDirectory) -> None:
    """Four tasks that compute two fifths of their time want 1.6 processors."""
    alone = recorded(run).on(4).seconds
    assert recorded(run).on(4, cores=1).seconds > alone
    assert recorded(run).on(4, cores=4).seconds == pytest.approx(alone)


def test_machines_with_nothing_else_to_do_take_the_processor_seconds(run: RunDirectory) -> None:
    assert recorded(run, computing=True).on(4).seconds == pytest.approx(4.5 + 2.0 + 4.5)


def test_the_storage_is_asked_for_what_was_read_and_written(run: RunDirectory) -> None:
    replay = recorded(run)
    assert replay.on(4).mean_rate == pytest.approx(600 / 23.0)
    assert 600 / 23.0 < replay.on(4).peak_rate <= 600 / 10.5
    assert replay.on(4, bandwidth=30.0).seconds > replay.on(4).seconds


def test_a_record_that_lacks_work_is_refused(run: RunDirectory) -> None:
    manifest = json.loads(run.manifest.read_text())
    manifest["stages"]["tables"] = {}
    run.manifest.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="lacks a part"):
        recorded(run)
    with pytest.raises(ValueError, match="no work is recorded"):
        recorded(RunDirectory(run.root / "nowhere"))


def test_the_command_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    assert "--workers" in capsys.readouterr().out
