"""The steps of the Containerfile in a fresh environment, without a container.

What they install from a package registry is taken from the environment of the tests: pip is told to
fetch nothing. All else is as it is in the image: a copy of the sources, and Python alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak

REPOSITORY = Path(__file__).resolve().parents[1]
FETCH_NOTHING = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    # Pip reads this as: do not isolate.
    "PIP_NO_BUILD_ISOLATION": "0",
}
COPIED = ("flows", "tasks", "geography", "validation", "library")
BESIDE_THEM = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (REPOSITORY / "Containerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_steps_of_the_containerfile_install_the_command(tmp_path: Path) -> None:
    environment = os.environ | FETCH_NOTHING
    environment_of_its_own = (sys.executable, "-m", "venv", "--without-pip", tmp_path / "python")
    subprocess.run(environment_of_its_own, check=True)
    (packages,) = (tmp_path / "python").glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "tests.pth").write_text("\n".join(others) + "\n")
    environment["PATH"] = f"{tmp_path / 'python' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    folder = tmp_path
    ran, is_user = [], False
    for word, rest in instructions():
        if word == "FROM":
            wanted = re.search(r'requires-python = ">=([\d.]+),', read("pyproject.toml"))
            assert wanted is not None and f"python:{wanted.group(1)}" in rest
        elif word == "WORKDIR":
            folder = tmp_path / rest.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            assert rest == ". ."
            copy_sources(folder)
        elif word == "ENV":
            environment |= dict(pair.split("=", 1) for pair in rest.split())
        elif word == "RUN":
            done = subprocess.run(
                ["sh", "-c", rest], cwd=folder, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{rest}: {done.stdout}{done.stderr}"
            ran.append(done.stdout)
        elif word == "USER":
            assert not rest.startswith(("0", "root")), "not as the superuser"
            assert environment["NUMBA_CACHE_DIR"].startswith(environment["HOME"])
            home = tmp_path / environment["HOME"].lstrip("/")
            assert home.stat().st_mode & 0o777 == 0o777
            environment |= {"HOME": str(home), "NUMBA_CACHE_DIR": str(home / "kernels")}
            is_user = True
        else:
            assert word == "CMD", f"the test does not know {word}"
    assert is_user
    assert any(re.search(r"^spineflow \d", output, re.M) for output in ran)
    python = tmp_path / "python" / "bin" / "python"
    where = [python, "-c", "import spineflow; print(spineflow.__file__)"]
    shown = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert Path(shown.stdout.strip()).is_relative_to(packages), "not what the steps installed"


def copy_sources(folder: Path) -> None:
    """Copy what the image is built from."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    for name in BESIDE_THEM:
        shutil.copy2(REPOSITORY / name, folder)


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")
