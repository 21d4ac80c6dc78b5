"""Checks in pieces: what they found is used while no file has changed, and never otherwise."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import CheckFailed
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.checks import pieces
from spineflow.tasks.topdown.checks.pieces import (
    findings_file,
    outcomes_of_pieces,
    pieces_of_share,
    read_findings,
    state_of_files,
    write_findings,
)
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.run_checks import CheckedRun
from spineflow.validation.topdown.tables import LevelTables, check_states

from tests.flows.conformance.cases import Finished

Unchecked = tuple[RunDirectory, TopdownSettings]


@pytest.fixture(scope="module")
def made(
    finished_run: Callable[[str], Finished], tmp_path_factory: pytest.TempPathFactory
) -> Unchecked:
    """A run up to its checks, and its settings; not to be changed."""
    finished = finished_run("topdown")
    run = RunDirectory(tmp_path_factory.mktemp("unchecked") / "run")
    shutil.copytree(finished.run.root, run.root)
    shutil.rmtree(run.checks)
    run.release.rename(run.unchecked_release)
    for page in run.unchecked_release.glob("certificate.*"):
        page.unlink()
    return run, frozen_settings(TopdownSettings, run.settings)


def cut_small(patched: pytest.MonkeyPatch) -> None:
    """Pieces and parts of a few blocks, so that a county has several."""
    patched.setattr(pieces, "BLOCKS_PER_PIECE", 6)
    patched.setattr(pieces, "MOST_PIECES", 3)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)


@pytest.fixture(scope="module")
def findings(made: Unchecked, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the small pieces of the run find, each by itself, by their names."""
    run = RunDirectory(tmp_path_factory.mktemp("checked") / "run")
    shutil.copytree(made[0].root, run.root)
    found = {}
    with pytest.MonkeyPatch.context() as patched:
        cut_small(patched)
        assert write_findings(run, 0, 1) and not write_findings(run, 0, 1)
        for piece in pieces_of_share(run, 0, 1):
            read = read_findings(run, piece, state_of_files(run))
            found[piece.name] = read and asdict(read)
    assert found and None not in found.values()
    return found


@pytest.fixture
def unchecked(
    made: Unchecked, findings: dict[str, Any], small_pieces: None, tmp_path: Path
) -> Unchecked:
    """A copy whose pieces have all been checked."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(made[0].root, run.root)
    state = state_of_files(run)
    for piece in pieces_of_share(run, 0, 1):
        pieces.store_result(findings_file(run, piece), state, findings[piece.name])
    return run, made[1]


def test_pieces_find_what_the_whole_does(
    made: Unchecked, unchecked: Unchecked, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = [pieces_of_share(unchecked[0], number, 4) for number in range(4)]
    names = [piece.name for share in shares for piece in share]
    assert {"persons-rows-0-of-3", "units-below-0-of-3", "tables-files-0-of-1"} <= set(names)
    assert len(names) == len(set(names)) == len(pieces_of_share(unchecked[0], 0, 1))
    monkeypatch.setattr(CheckedRun, "check", None)  # All has been found already.
    in_pieces = outcomes_of_pieces(*unchecked)
    monkeypatch.undo()
    whole = outcomes_of_pieces(*made)
    assert [(o.name, o.subject, o.detail) for o in in_pieces] == [
        (o.name, o.subject, o.detail) for o in whole
    ]
    assert all(outcome.passed for outcome in in_pieces)


def test_a_share_without_states_reads_nothing(made: Unchecked, tmp_path: Path) -> None:
    """A state with more blocks than a share leaves others without one."""
    found = Failures()
    check_states(LevelTables(pieces.checked_run(made[0]).declaration, tmp_path), [], found)
    assert not found.texts


def other_person(run: RunDirectory) -> Path:
    path = run.unchecked_release / "mdf_persons.csv"
    text = path.read_bytes()
    path.write_bytes(text[:-3] + (b"02\n" if text[-3:] != b"02\n" else b"03\n"))
    return path


def other_estimate(run: RunDirectory) -> Path:
    path = next((run.root / "estimates" / "units" / "Block").glob("*.parquet"))
    table = pq.read_table(path)
    count = table["count"].to_numpy().copy()
    count[0] += 1
    pq.write_table(table.set_column(table.column_names.index("count"), "count", [count]), path)
    return path


def other_table(run: RunDirectory) -> Path:
    path = run.unchecked_release / "tables" / "750_block.csv"
    text = path.read_bytes()
    path.write_bytes(text[:-2] + (b"1\n" if text[-2:] != b"1\n" else b"2\n"))
    return path


CHANGES: dict[Callable[[RunDirectory], Path], str] = {
    other_person: "microdata_tabulate_to_estimates",
    other_estimate: "children_add_to_parents",
    other_table: "tables_count_the_microdata",
}
"""Of a file that was checked, and which check finds it."""


def test_what_is_altered_after_it_was_checked_is_seen(unchecked: Unchecked) -> None:
    """Even where the file has its old times again: nothing that was found is used any more."""
    run, settings = unchecked
    before = {path: path.stat() for path in run.root.rglob("*") if path.is_file()}
    every = pieces_of_share(run, 0, 1)
    for change in CHANGES:
        state = state_of_files(run)
        assert read_findings(run, every[0], state) is not None
        path = change(run)
        os.utime(path, ns=(before[path].st_atime_ns, before[path].st_mtime_ns))
        found = [read_findings(run, piece, state_of_files(run)) for piece in every]
        assert found == [None] * len(every)
        pieces.store_result(findings_file(run, every[0]), state_of_files(run), {})
    findings_file(run, every[0]).unlink()
    with pytest.raises(CheckFailed):
        TOPDOWN.check_run(run, settings)
    checks = json.loads((run.checks / "checks.json").read_text())["checks"]
    assert set(CHANGES.values()) <= {check["name"] for check in checks if not check["passed"]}
    assert not run.release.exists()


@pytest.mark.slow
def test_findings_that_are_missing_or_cut_let_nothing_pass(unchecked: Unchecked) -> None:
    """A spoiled file fails whichever findings are there, if those of its piece are not."""
    run, settings = unchecked
    every = pieces_of_share(run, 0, 1)
    other_person(run)
    spoiled = [piece for piece in every if piece.name.startswith("persons-text")]
    for spoil in (Path.unlink, lambda path: path.write_text(path.read_text()[:40])):
        assert write_findings(run, 0, 1)
        for piece in spoiled:
            spoil(findings_file(run, piece))
            assert read_findings(run, piece, state_of_files(run)) is None
        failed = [o for o in outcomes_of_pieces(run, settings) if not o.passed]
        (found,) = failed
        assert (found.subject, found.name) == ("persons", "microdata_tabulate_to_estimates")
        assert "differ in" in found.detail


@pytest.mark.slow
def test_planted_defects_fail_in_the_same_words(made: Unchecked, unchecked: Unchecked) -> None:
    run, settings = unchecked
    for change in CHANGES:
        change(run)
    write_findings(run, 0, 1)
    in_pieces = [(o.name, o.subject, o.detail) for o in outcomes_of_pieces(run, settings)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pieces, "BLOCKS_PER_PIECE", 1 << 16)
        whole = [(o.name, o.subject, o.detail) for o in outcomes_of_pieces(run, settings)]
    assert in_pieces == whole
