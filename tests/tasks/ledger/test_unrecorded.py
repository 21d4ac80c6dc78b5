"""Noise that is not recorded: who is killed while drawing leaves nothing that others can read."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.ingest.read import ingest_groups
from spineflow.tasks.group_sizes.measurement import measure_level
from spineflow.tasks.group_sizes.plan import UNIVERSE
from spineflow.tasks.group_sizes.product import GROUP_SIZES
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.ledger.charging import Claim
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings

from tests.flows.in_process import judged_once

FORK = multiprocessing.get_context("fork")

SYSTEM_CALLS = {"open", "link", "replace", "unlink", "mkdir", "fsync", "fchmod", "flock", "flush"}
SYSTEM_CALLS |= {"close", "execute"}
"""Names of the functions before any of which a worker is killed."""

LEVELS = ("nation", "state", "county")


@pytest.fixture
def settings(tmp_path: Path) -> GroupSizesSettings:
    file = write_dataset(tmp_path, census_like(groups=60, counties=4, states=2, largest=8))
    return load_settings(GroupSizesSettings, file, presets=tmp_path)


def charged(folder: Path, settings: GroupSizesSettings) -> RunDirectory:
    """A run that may draw."""
    run = RunDirectory(folder)
    run.root.mkdir()
    start_run(run, product="group-sizes", settings_text=dump_settings(settings))
    with judged_once():
        ingest_groups(run, settings)
    GROUP_SIZES.charge_run(run, settings)
    return run


def measure_and_die(
    run: RunDirectory, settings: GroupSizesSettings, level: str, moment: int
) -> None:
    """Measure a level, and be killed before a call to the system that follows the draw."""
    seen = 0
    draw = Claim.draw

    def count(_frame: object, event: str, function: object) -> None:
        nonlocal seen
        if event == "c_call" and getattr(function, "__name__", "") in SYSTEM_CALLS:
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    def draw_and_count(*arguments: Any) -> np.ndarray:
        drawn = draw(*arguments)
        sys.setprofile(count)
        return drawn

    Claim.draw = draw_and_count
    measure_level(run, settings, level)
    sys.setprofile(None)
    os._exit(0)


def is_killed(run: RunDirectory, settings: GroupSizesSettings, level: str, moment: int) -> bool:
    process = FORK.Process(target=measure_and_die, args=(run, settings, level, moment))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def open_to_others(folder: Path) -> Iterator[Path]:
    """Files that another user can reach and read."""
    for entry in folder.iterdir():
        mode = entry.stat().st_mode
        if entry.is_dir():
            if mode & 0o011:
                yield from open_to_others(entry)
        elif mode & 0o044:
            yield entry


def recorded(run: RunDirectory, settings: GroupSizesSettings) -> set[str]:
    with closing(sqlite3.connect(settings.privacy.ledger)) as connection:
        rows = connection.execute(
            "SELECT digest FROM published WHERE run_id = ?", [run.read_manifest()["run_id"]]
        )
        return {digest for (digest,) in rows}


def seen_by_others(run: RunDirectory) -> set[str]:
    """Digests of the measurements, whole or not, that another user can read."""
    return {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in open_to_others(run.root)
        if path.is_relative_to(run.root / "measurements") and path.stat().st_size
    }


def assert_continues(run: RunDirectory, settings: GroupSizesSettings, level: str) -> None:
    """The file is drawn, or gets its name; its digest is the one that was ever recorded."""
    before = recorded(run, settings)
    GROUP_SIZES.charge_run(run, settings)
    measure_level(run, settings, level)
    assert before <= recorded(run, settings) == seen_by_others(run)
    path = run.dpqueries(UNIVERSE, level)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert not list(run.root.rglob("*.unpublished"))
    assert path.stat().st_mode & 0o777 == 0o666 & path.parent.stat().st_mode


@pytest.mark.soak(20)
def test_a_kill_at_any_moment_leaves_nothing_unrecorded_to_others(
    tmp_path: Path, settings: GroupSizesSettings
) -> None:
    """Threat model: other accounts read the run directory."""
    # What a process works out before its first draw, its children need not.
    first = charged(tmp_path / "first", settings)
    for level in LEVELS:
        measure_level(first, settings, level)
    moments, was_killed, levels = Counter[bool](), True, list[str]()
    while was_killed:
        if not levels:
            run, levels = charged(tmp_path / f"run-{moments.total()}", settings), [*LEVELS]
        before = recorded(run, settings)
        was_killed = is_killed(run, settings, levels[0], moments.total() + 1)
        is_recorded = recorded(run, settings) != before
        moments[is_recorded] += 1
        assert seen_by_others(run) <= recorded(run, settings), moments
        if is_recorded:
            assert_continues(run, settings, levels.pop(0))
    assert min(moments[False], moments[True]) > 5
