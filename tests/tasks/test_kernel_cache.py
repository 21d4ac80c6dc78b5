"""Where compiled kernels are kept over an installation that cannot be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from spineflow import tasks
from spineflow.tasks import VARIABLE, choose_kernel_cache


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, with nowhere else to write: not even for the superuser."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setattr(tasks, "__file__", "/proc/none/__init__.py")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_kernels_go_to_a_temporary_folder_of_this_user_alone(temporary: Path) -> None:
    choose_kernel_cache()
    folder = Path(os.environ[VARIABLE])
    assert folder.parent == temporary and folder.stat().st_mode & 0o777 == 0o700
    del os.environ[VARIABLE]
    choose_kernel_cache()
    assert Path(os.environ[VARIABLE]) == folder, "the next process finds what this one compiles"


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_a_folder_that_others_could_write_is_not_taken(temporary: Path, kind: str) -> None:
    choose_kernel_cache()
    folder = Path(os.environ.pop(VARIABLE))
    if kind == "open":
        folder.chmod(0o777)
    else:
        folder.rmdir()
        (temporary / "other").mkdir(mode=0o700)
        folder.symlink_to(temporary / "other") if kind == "link" else folder.touch()
    choose_kernel_cache()
    chosen = Path(os.environ[VARIABLE])
    assert chosen != folder and chosen.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("where", ["installation", "home", "named", "set"])
def test_numba_chooses_where_it_can(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "installation":
        monkeypatch.setattr(tasks, "__file__", str(temporary / "__init__.py"))
    elif where == "set":
        monkeypatch.setenv(VARIABLE, "/elsewhere")
    else:
        monkeypatch.setenv({"home": "HOME", "named": "XDG_CACHE_HOME"}[where], str(temporary))
    choose_kernel_cache()
    assert os.environ.get(VARIABLE) == ("/elsewhere" if where == "set" else None)


def test_a_user_without_a_home_has_one_too(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(temporary)
    choose_kernel_cache()
    assert Path(os.environ[VARIABLE]).parent == temporary and not (temporary / "~").exists()
