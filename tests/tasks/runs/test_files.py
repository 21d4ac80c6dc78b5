"""What is read of a file is kept as long as the file stands unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import read_record, while_unchanged


def test_a_file_is_read_again_once_it_was_changed_whatever_its_time_says(tmp_path: Path) -> None:
    reads: list[str] = []

    @while_unchanged(lambda folder, name: folder / name, at_most=2)
    def read(folder: Path, name: str) -> str:
        reads.append(name)
        return (folder / name).read_text()

    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    for _ in range(3):
        assert (read(tmp_path, "a"), read(tmp_path, "b")) == ("a", "b")
    assert reads == ["a", "b"]
    before = (tmp_path / "a").stat()
    (tmp_path / "a").write_text("c")
    os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(tmp_path, "a") == "c"


def test_what_is_read_of_several_files_hangs_on_each(tmp_path: Path) -> None:
    @while_unchanged(lambda folder: sorted(folder.glob("*.txt")), at_most=1)
    def read(folder: Path) -> str:
        return "".join(path.read_text() for path in sorted(folder.glob("*.txt")))

    (tmp_path / "a.txt").write_text("a")
    assert read(tmp_path) == "a"
    (tmp_path / "b.txt").write_text("b")
    assert read(tmp_path) == "ab"
    (tmp_path / "b.txt").write_text("!!")
    assert read(tmp_path) == "a!!"


def test_json_of_any_depth_that_is_no_record_is_refused(tmp_path: Path) -> None:
    for file in (tmp_path / "record.json", tmp_path / "manifest.json"):
        file.write_text("[" * 100_000)
    with pytest.raises(InputRefused, match="record.json cannot be read"):
        read_record(tmp_path / "record.json")
    with pytest.raises(InputRefused, match="manifest.json cannot be read"):
        RunDirectory(tmp_path).read_manifest()
