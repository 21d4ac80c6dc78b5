"""The wheel as a user has it: one package, whatever modules the working directory holds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = {
    "spineflow": "library",
    "spineflow/flows": "flows",
    "spineflow/tasks": "tasks",
    "spineflow/geography": "geography",
    "spineflow/validation": "validation",
}
"""Folder of the repository by folder of the package."""

BESIDE_THEM = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
COMPILED = ("__pycache__", "*.nbi", "*.nbc")
DECOYS = ("tasks", "flows", "geography", "validation", "library")
DECOY = 'raise ImportError("a module of the working directory was imported")\n'


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources in which an earlier build has left its modules."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    for name in BESIDE_THEM:
        shutil.copy2(REPOSITORY / name, sources)
    for name in FOLDERS.values():
        shutil.copytree(REPOSITORY / name, sources / name, ignore=shutil.ignore_patterns(*COMPILED))
    for stale in ("tasks/stale.py", "spineflow/stale.py", "spineflow/tasks/stale/__init__.py"):
        path = sources / "build" / "lib" / stale
        path.parent.mkdir(parents=True)
        path.write_text(DECOY)
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", folder, sources, folder=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment with the wheel; the packages it needs are those of the tests.

    The kernels that were compiled for the tests stand for those that it would compile in a minute:
    numba takes them for its own where the sources have the same size and time.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    found = folder / "bin" / "python"
    options = ("--no-deps", "--no-index", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "--python", found, "install")
    run(*pip, *options, wheel, folder=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    assert {path.name.partition("-")[0] for path in packages.iterdir()} == {"spineflow"}
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "tests.pth").write_text("\n".join(others) + "\n")
    for package, name in FOLDERS.items():
        for source in (REPOSITORY / name).rglob("*.py"):
            installed = packages / package / source.relative_to(REPOSITORY / name)
            os.utime(installed, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
        for compiled in (REPOSITORY / name).rglob("__pycache__/*.nb[ci]"):
            kept = packages / package / compiled.relative_to(REPOSITORY / name)
            kept.parent.mkdir(exist_ok=True)
            shutil.copy2(compiled, kept)
    return found


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory with modules of the names that the repository's folders have."""
    for name in DECOYS:
        (tmp_path / f"{name}.py").write_text(DECOY)
    return tmp_path


def test_the_wheel_holds_the_package_and_all_of_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        f"{package}/{path.relative_to(REPOSITORY / name).as_posix()}"
        for package, name in FOLDERS.items()
        for path in (REPOSITORY / name).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert held == expected
    assert {"spineflow/py.typed", "spineflow/flows/settings/pl94_2020_us.toml"} <= held


@pytest.mark.soak(30)
def test_the_demo_runs_beside_decoys(python: Path, elsewhere: Path, real_server) -> None:
    """By its command, and as a module: Python then puts the working directory on its path.

    The database of the embedded server exists, as it does after a first run.
    """
    home = {"PREFECT_HOME": str(elsewhere / "prefect")}
    (elsewhere / "prefect").mkdir()
    shutil.copy(real_server.new_database, elsewhere / "prefect" / "prefect.db")
    shown = run(python.with_name("spineflow"), "demo", folder=elsewhere, **home)
    root = elsewhere / "spineflow-demo" / "run"
    assert str(root / "release") in shown
    assert (root / "release" / "mdf_persons.parquet").exists()
    assert json.loads((root / "manifest.json").read_text())["status"] == "complete"
    (root / "report" / "report.html").unlink()
    run(python, "-m", "spineflow.flows.cli", "report", root, folder=elsewhere, **home)
    assert (root / "report" / "report.html").exists()


def test_flows_are_run_with_the_oldest_and_the_newest_prefect_that_is_allowed() -> None:
    """The oldest is that of `constraints.txt`, with which `make test` runs everything."""
    (tested,) = re.findall(r"^prefect==(.*)$", (REPOSITORY / "constraints.txt").read_text(), re.M)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (allowed,) = [one for one in project["dependencies"] if re.match("prefect[<>=]", one)]
    assert allowed.startswith(f"prefect>={tested},<")
    made = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    listed = re.search(r"FLOWS_ON_PREFECT := .*?test_,(.*?)\)", made, re.S)
    assert listed is not None
    names = listed[1].replace("\\", "").split()
    missing = [
        name for name in names if not (REPOSITORY / "tests" / "flows" / f"test_{name}").exists()
    ]
    assert len(names) > 5 and missing == []
    commands = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert commands[-2:] == ["make newest-prefect", "make test"]
