"""Commands on a declared census before and after a run: its design, and the errors to expect."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.cli import main

from tests.tasks.topdown.abroad import write_census


@pytest.fixture
def by_year(tmp_path: Path) -> Path:
    """The census of the office abroad by single years of age, which a query coarsens."""
    path = write_census(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("bins = [0, 15, 30, 65], largest = 110", "numbers = [0, 110]"),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("command", ["check", "budget"])
@pytest.mark.parametrize("rho", ["1e-12", "1e-9"])
def test_a_budget_whose_noise_has_no_margin_is_refused_by_its_key(
    by_year: Path, capsys, command: str, rho: str
) -> None:
    overrides = ["--set", f'budget.people.rho="{rho}"']
    assert main([command, "topdown", str(by_year), *overrides]) == 2
    assert "budget.people.rho is 1e-" in capsys.readouterr().err
