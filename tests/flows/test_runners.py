"""The same DAG gives the same release on every runner."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.demo import SETTINGS

pytestmark = pytest.mark.slow

RUNNERS = {
    "threads": ["run.runner=threads", "run.workers=2"],
    "one thread": ["run.runner=threads", "run.workers=1"],
    "processes": ["run.runner=processes", "run.workers=2"],
    "dask": ["run.runner=dask", "run.workers=2"],
}


@pytest.fixture(scope="module")
def releases(
    prefect_server, county: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, bytes]]:
    """Microdata of one county by runner, all from the same seed."""
    folder = tmp_path_factory.mktemp("runners")
    settings = folder / "settings.toml"
    settings.write_text(SETTINGS.replace("input/", f"{county}/"), encoding="utf-8")
    found = {}
    for name, overrides in RUNNERS.items():
        run = folder / name
        options = [part for setting in overrides for part in ("--set", setting)]
        options += ["--set", "privacy.seed=7", "--run-dir", str(run)]
        assert main(["run", "topdown", str(settings), *options]) == 0
        microdata = sorted((run / "release").glob("mdf_*"))
        found[name] = {path.name: path.read_bytes() for path in microdata}
    return found


@pytest.mark.parametrize("runner", list(RUNNERS)[1:])
def test_every_runner_gives_the_same_release(releases, runner: str) -> None:
    assert releases[runner] == releases["threads"]
    assert len(releases[runner]) == 4
