"""Digests of public files are those of their bytes, and are made once while a file stands."""

from __future__ import annotations

import gc
import hashlib
import json
import os
from pathlib import Path

import pytest
from spineflow.tasks.runs import charged_files
from spineflow.tasks.runs.charged_files import (
    digest_of,
    digests_of,
    refuse_altered,
)
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import sha256_of_file


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """Names of the files that are hashed, by a process that knows none."""
    names: list[str] = []

    def noted(path: Path) -> str:
        names.append(path.name)
        return sha256_of_file(path)

    monkeypatch.setattr(charged_files, "_known", {})
    monkeypatch.setattr(charged_files, "sha256_of_file", noted)
    return names


def test_a_file_is_hashed_again_when_it_has_changed(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    before = path.stat()
    assert digest_of(path) == digest_of(path) == hashlib.sha256(b"first").hexdigest()
    assert read == ["file"]
    path.write_bytes(b"other")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_of(path) == hashlib.sha256(b"other").hexdigest()
    assert read == ["file"] * 2


def test_many_files_are_hashed_once_each(tmp_path: Path, read: list[str]) -> None:
    paths = [tmp_path / f"{number:05}" for number in range(20)]
    for path in paths:
        path.write_bytes(path.name.encode())
    for _ in range(2):
        assert digests_of(paths) == [sha256_of_file(path) for path in paths]
    assert sorted(read) == [path.name for path in paths]
    with pytest.raises(FileNotFoundError):
        digests_of([*paths, tmp_path / "gone"])


def test_a_renamed_folder_s_files_are_not_hashed_again(tmp_path: Path, read: list[str]) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "tables").mkdir(parents=True)
    for name in ("tables/a.csv", "tables/b.csv", "c.csv"):
        (before / name).write_bytes(name.encode())
        digest_of(before / name)
    before.rename(after)
    (after / "c.csv").write_bytes(b"other")
    charged_files.know_renamed(before, after)
    assert digest_of(after / "tables" / "a.csv") == hashlib.sha256(b"tables/a.csv").hexdigest()
    assert digest_of(after / "c.csv") == hashlib.sha256(b"other").hexdigest()
    assert read == ["a.csv", "b.csv", "c.csv", "c.csv"]


def test_files_are_renamed_while_others_are_added(tmp_path: Path, read: list[str]) -> None:
    """A collection of garbage lets other threads run, which may add to what is known."""
    before, after = tmp_path / "before", tmp_path / "after"
    names = [f"{number}" for number in range(5_000)]
    state = (0, 0, 0, 0)
    charged_files._known.update({before / name: (state, "00") for name in names})

    def collected(phase: str, info: dict) -> None:
        charged_files._known[tmp_path / f"{len(charged_files._known)}"] = (state, "00")

    gc.callbacks.append(collected)
    try:
        charged_files.know_renamed(before, after)
    finally:
        gc.callbacks.remove(collected)
    assert {after / name for name in names} <= charged_files._known.keys()


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "spine/../../outside", ""])
def test_names_that_lead_out_of_a_run_are_not_opened(
    tmp_path: Path, read: list[str], name: str
) -> None:
    run = RunDirectory(tmp_path / "run")
    (run.root / "spine").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"outside")
    (run.root / "spine" / "charged.json").write_text(json.dumps({name: "00"}))
    with pytest.raises(InputRefused, match=r"charged\.json cannot be read"):
        refuse_altered(run)
    assert not read
