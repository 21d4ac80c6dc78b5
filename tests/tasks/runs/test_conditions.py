"""Digests of public files are those of their bytes, and are made once while a file stands."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from spineflow.tasks.runs import conditions
from spineflow.tasks.runs.conditions import (
    digest_of,
    digests_of,
    hash_ahead,
    known_digests,
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

    monkeypatch.setattr(conditions, "_known", {})
    monkeypatch.setattr(conditions, "_ahead", [])
    monkeypatch.setattr(conditions, "sha256_of_file", noted)
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


def test_what_a_run_is_held_against_is_hashed_ahead(tmp_path: Path, read: list[str]) -> None:
    run = RunDirectory(tmp_path)
    measured = [run.dpqueries("persons", "Block", f"{number:05}") for number in range(20)]
    for path in (run.root / "spine" / "plan.json", *measured):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.name.encode())
    charged = {"spine/plan.json": "00", "spine/gone.json": "00"}
    (run.root / "spine" / "charged.json").write_text(json.dumps(charged))
    hash_ahead(run)
    assert digests_of(measured) == [sha256_of_file(path) for path in measured]
    assert sorted(read) == sorted(["plan.json", *(path.name for path in measured)])
    assert set(known_digests()) == {run.root / "spine" / "plan.json", *measured}


def test_another_process_is_told_what_is_known(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    digest_of(path)
    known = known_digests()
    conditions._known.clear()
    conditions.know_digests(known)
    digest_of(path)
    assert read == ["file"]
    path.write_bytes(b"second")
    assert digest_of(path) == hashlib.sha256(b"second").hexdigest()


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "spine/../../outside", ""])
def test_names_that_lead_out_of_a_run_are_not_opened(
    tmp_path: Path, read: list[str], name: str
) -> None:
    run = RunDirectory(tmp_path / "run")
    (run.root / "spine").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"outside")
    (run.root / "spine" / "charged.json").write_text(json.dumps({name: "00"}))
    for opened in (hash_ahead, refuse_altered):
        with pytest.raises(InputRefused, match=r"charged\.json cannot be read"):
            opened(run)
    assert not read
