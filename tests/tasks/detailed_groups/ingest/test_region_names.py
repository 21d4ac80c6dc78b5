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
