"""Digests of public files are those of their bytes, and are made once while a file stands."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from spineflow.tasks.runs import charged_files
from spineflow.tasks.runs.charged_files import (
    digest_of,
    digests_of,
    hash_ahead,
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
    monkeypatch.setattr(charged_files, "_shared", None)
    monkeypatch.setattr(charged_files, "_ahead", [])
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
    assert set(charged_files._known) == {run.root / "spine" / "plan.json", *measured}


def _told_by_another(folder: Path, code: str) -> str:
    """What a process prints that shares the digests of this one."""
    begun = (
        "from pathlib import Path; from spineflow.tasks.runs import charged_files;"
        f"charged_files.share_digests(Path({str(charged_files.shared_digests())!r}));"
        "hashed = []; whole = charged_files.sha256_of_file;"
        "charged_files.sha256_of_file = lambda path: (hashed.append(path.name), whole(path))[1];"
    )
    told = subprocess.run(
        [sys.executable, "-c", begun + code], cwd=folder, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


def test_processes_tell_each_other_what_they_hash(tmp_path: Path, read: list[str]) -> None:
    before, after, changed = (tmp_path / name for name in ("before", "after", "changed"))
    for path in (before, after, changed):
        path.write_bytes(path.name.encode())
    digest_of(before)
    other = "".join(
        f"charged_files.digest_of(Path({str(path)!r}));" for path in (before, after, changed)
    )
    assert _told_by_another(tmp_path, other + "print(*hashed)") == "after changed"
    changed.write_bytes(b"otherwise")
    assert [digest_of(path) for path in (before, after)] == [
        hashlib.sha256(path.name.encode()).hexdigest() for path in (before, after)
    ]
    assert digest_of(changed) == hashlib.sha256(b"otherwise").hexdigest()
    assert read == ["before", "changed"]


def test_threads_that_listen_at_once_miss_nothing(tmp_path: Path, read: list[str]) -> None:
    (tmp_path / "told").touch()
    told = charged_files._Shared(tmp_path / "told")
    heard: dict[Path, object] = {}
    with ThreadPoolExecutor(8) as threads:
        for number in range(50):
            path = Path(f"{number}")
            told.tell({path: ((number, 0, 0, 0), "00")})
            for news in threads.map(lambda _: told.news(), range(8)):
                heard |= news
            assert heard[path] == ((number, 0, 0, 0), "00")
    assert told.n_read == (tmp_path / "told").stat().st_size


def test_what_is_told_ends_with_the_process_that_has_begun_it(
    tmp_path: Path, read: list[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    charged_files.share_digests(tmp_path / "gone")
    assert digest_of(path) == digest_of(path) == hashlib.sha256(b"first").hexdigest()
    assert read == ["file"]
    assert not (tmp_path / "gone").exists()


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


def test_digests_are_told_while_others_are_added(tmp_path: Path, read: list[str]) -> None:
    """A collection of garbage lets other threads run, which may add to what is known."""
    before, after, told = (tmp_path / name for name in ("before", "after", "told"))
    names = [f"{number}" for number in range(5_000)]
    state = (0, 0, 0, 0)
    charged_files._known.update({before / name: (state, "00") for name in names})
    told.touch()

    def collected(phase: str, info: dict) -> None:
        charged_files._known[tmp_path / f"{len(charged_files._known)}"] = (state, "00")

    thresholds = gc.get_threshold()
    gc.callbacks.append(collected)
    try:
        charged_files.know_renamed(before, after)
        gc.set_threshold(1, 10**6)  # Or else the few objects of a line would have none begin.
        charged_files.share_digests(told)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collected)
    heard = charged_files._Shared(told).news()
    assert {folder / name for folder in (before, after) for name in names} <= set(heard)


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
