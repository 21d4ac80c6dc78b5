"""What the command `budget` says of declared censuses whose queries or shares do not all serve."""

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


@pytest.mark.soak(5)
def test_the_least_budget_that_a_check_accepts_has_a_table(by_year: Path, capsys) -> None:
    for power in range(12, 0, -1):
        overrides = ["--set", f'budget.people.rho="1e-{power}"']
        if (code := main(["check", "topdown", str(by_year), *overrides])) == 0:
            break
    assert code == 0 and main(["budget", "topdown", str(by_year), *overrides]) == 0
    capsys.readouterr()


def test_a_budget_is_shown_where_there_can_be_no_forecast(by_year: Path, capsys) -> None:
    page = by_year.parent / "forecast.html"
    assert main(["budget", "topdown", str(by_year), "--forecast", str(page)]) == 0
    shown = capsys.readouterr()
    assert "french * minor" in shown.out and "margin, 95 %" in shown.out
    (told,) = [line for line in shown.err.splitlines() if "forecast" in line]
    assert told.startswith("warning: There is no forecast of people: budget.people tells 112 ")
    assert "age (112 levels, coarsened by 'french * minor')" in told and "design" not in told
    text = page.read_text(encoding="utf-8")
    assert "There is no forecast of people" in text and "Margins of the total of dwellings" in text
