"""What commands say beside their tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from spineflow.flows import progress
from spineflow.flows.console import as_typed, shown_progress
from spineflow.flows.kernels import ANNOUNCEMENT


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


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams are terminals, as wide as any line of these tests."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def told(listener: Callable[[str, int, int], None]) -> None:
    """A sentence, and a stage of four tasks of which three have ended."""
    listener("watch it there", 0, 0)
    for done in range(4):
        listener("persons measure County", done, 4)


@pytest.mark.parametrize("is_compiling", [True, False])
@pytest.mark.usefixtures("terminal")
def test_a_terminal_has_a_bar_for_every_stage(
    is_compiling: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress(is_compiling):
        told(progress._tell)
    assert not progress._listeners
    shown = capsys.readouterr()
    assert (f"{ANNOUNCEMENT}: meanwhile" in shown.err) == is_compiling
    assert "watch it there" in shown.err and "persons measure County" in shown.err
    assert "3/4" in shown.err and "starting Prefect" in shown.err
    last = shown.err[shown.err.rindex("starting Prefect") :]
    assert "1/1" in last
    assert shown.out == ""
