"""What commands say beside their tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.console import as_typed, word_of_kernels


def test_a_first_run_is_told_why_it_takes_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert "once per installation" in (word_of_kernels() or "")
    (tmp_path / "estimation").mkdir()
    (tmp_path / "estimation" / "active_set._iterate-104.py311.nbi").touch()
    assert word_of_kernels() is None


def test_the_next_command_is_written_as_it_must_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin dir" / "spineflow"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    assert as_typed(str(program)) == f"'{program}'"
    monkeypatch.setenv("PATH", str(program.parent))
    assert as_typed(str(program)) == "spineflow"
    assert as_typed("/somewhere/pytest") == "spineflow"
