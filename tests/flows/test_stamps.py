"""Runs that are not private: every file says so from the moment at which it has its name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.products.product import OF_ONE_INPUT
from spineflow.tasks.runs.directory import RunDirectory

from tests.flows.small_runs import settings_files
from tests.seeds import covering

STAMP = b"NOT PRIVATE"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return settings_files(tmp_path_factory.mktemp("people"))


def is_stamped(path: Path) -> bool:
    """In the metadata of the file, where anybody looks, and of its schema, where pyarrow does."""
    found = (pq.read_metadata(path).metadata, pq.read_schema(path).metadata)
    return all((metadata or {}).get(b"spineflow") == STAMP for metadata in found)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Parquet files in the order in which they get their names; they must be stamped by then."""
    seen: list[Path] = []

    for function in (os.replace, os.link):

        def watched(source, target, function=function, **options) -> None:
            function(source, target, **options)
            if str(target).endswith(".parquet"):
                seen.append(Path(target))
                assert is_stamped(seen[-1]), target

        monkeypatch.setattr(os, function.__name__, watched)
    yield seen


@pytest.mark.parametrize(
    ("product", "privacy"),
    covering(
        [name for name in OF_ONE_INPUT if name != "estimate"],
        ["privacy.infinite=true", "privacy.seed=7"],
    ),
)
def test_all_files_are_stamped_when_they_are_written(
    files: dict[str, Path], tmp_path: Path, named: list[Path], product: str, privacy: str
) -> None:
    """Threat model: runs without private noise taken for private ones."""
    run = RunDirectory(tmp_path / "run")
    options = ["--set", "input.confidential=false", "--set", privacy]
    if product == "topdown" and "seed" not in privacy:
        # They are those of a run with a seed, and take half of the time.
        options += ["--set", "release.tables=false"]
    assert main(["run", product, str(files[product]), "--run-dir", str(run.root), *options]) == 0
    assert len(named) == len(set(named)) > 3, "nothing is written twice"
    assert main(["report", str(run.root)]) == 0
    for path in run.root.rglob("*.parquet"):
        assert is_stamped(path), path
    stages = run.read_manifest()["stages"].values()
    digests = {path: digest for stage in stages for path, digest in stage["digests"].items()}
    measured = [path for path in digests if path.startswith("measurements/") and digests[path]]
    assert measured
    for path in measured:
        content = (run.root / path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digests[path], path
