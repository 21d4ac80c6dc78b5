"""Names of regions: what is read, kept and refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.ingest.ingest import (
    read_names,
    read_run_names,
    write_run_names,
)
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused

HEADER = "REGION_TYPE|REGION_ID|REGION_NAME"


def written(folder: Path, *lines: str) -> str:
    path = folder / "names.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_names_are_read_and_kept(tmp_path: Path) -> None:
    names = read_names(written(tmp_path, HEADER, "COUNTY|44001|Bristol County", "USA|1|Étoile"))
    assert names == {("COUNTY", "44001"): "Bristol County", ("USA", "1"): "Étoile"}
    run = RunDirectory(tmp_path / "run")
    assert read_run_names(run) == {}
    write_run_names(run, names)
    assert read_run_names(run) == names
    write_run_names(run, {})
    assert read_run_names(run) == {}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (("REGION_ID|REGION_NAME", "1|x"), "first line must be REGION_TYPE"),
        ((HEADER, "CITY|1|x"), "line 2 must have a region type"),
        ((HEADER, "USA|1"), "line 2 must have"),
        ((HEADER, "USA|1|"), "line 2 must have"),
        ((HEADER, "USA|1|x", "USA|1|y"), "line 3 names USA 1 again"),
    ],
)
def test_what_is_refused(tmp_path: Path, lines: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputRefused, match=sentence):
        read_names(written(tmp_path, *lines))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="nothing.txt.*does not exist"):
        read_names(str(tmp_path / "nothing.txt"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_names_are_read_in_marked_encodings(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text(f"{HEADER}\nUSA|1|Étoile\n", encoding=encoding)
    assert read_names(str(file)) == {("USA", "1"): "Étoile"}


def test_names_in_other_encodings_are_refused_as_tables_are(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text(f"{HEADER}\nUSA|1|Étoile\n", encoding="latin-1")
    with pytest.raises(
        InputRefused, match=r"^names\.txt: .*not UTF-8.*line 2.*; save it as UTF-8\."
    ):
        read_names(str(file))
