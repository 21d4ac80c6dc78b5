"""What commands say beside their tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.console import as_typed


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
