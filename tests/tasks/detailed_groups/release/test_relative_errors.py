"""Populations from which tables are accurate, against the margins that define them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.release.budget import level_figures, level_reports
from spineflow.tasks.detailed_groups.release.relative_errors import (
    populations_table,
    table_populations,
)
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings, ExplorerSettings
from spineflow.tasks.detailed_groups.workload.explorer import LevelBudget
from spineflow.tasks.detailed_groups.workload.parameters import (
    read_parameters,
    read_specification,
)
from spineflow.tasks.noise.sums import coverage_of_sum
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings

COVERAGE = Fraction(95, 100)


@settings(max_examples=25, deadline=None)
@given(
    st.fractions(Fraction(1, 50), 3, max_denominator=100),
    st.fractions(Fraction(1, 50), Fraction(1, 3), max_denominator=50),
    st.booleans(),
)
def test_populations_are_the_smallest(budget: Fraction, error: Fraction, is_pure: bool) -> None:
    level = LevelBudget(budget, 9, Fraction(1, 10), is_pure)
    tables = table_populations(level, (10, 20, 30), (error,), COVERAGE)
    assert [table["cells"] for table in tables] == [1, 8, 18, 46]
    assert [table["from_total"] for table in tables] == [None, 10, 20, 30]
    noise = level.second_stage
    for table in tables:
        for n, of_whole, population in (
            (1, Fraction(1, table["cells"]), table["population_for_cells"][str(error)]),
            (table["cells"], Fraction(1), table["population_for_total"][str(error)]),
        ):
            within = int(error * of_whole * population)
            assert coverage_of_sum(noise, n, within) >= 0.95 - 1e-9
            if population:
                short = int(error * of_whole * (population - 1))
                assert coverage_of_sum(noise, n, short) < 0.95 + 1e-9


def test_budget_tells_the_populations_that_are_asked_for(groups_input) -> None:
    folder = str(groups_input / "params")
    explorer = ExplorerSettings(relative_errors=(Fraction(1, 4), Fraction(1, 2)))
    parameters, specification = read_parameters(folder, {}), read_specification(folder)
    figures = level_figures(parameters, specification, "us")
    levels = level_reports(figures, parameters, explorer)
    table = populations_table(levels)
    assert len(table.rows) == 4 * len(levels)
    assert table.headers[-2:] == ("total within 25 %", "total within 50 %")
    for level in levels:
        first, *_, last = level["tables"]
        assert first["population_for_cells"] == first["population_for_total"]
        assert last["population_for_cells"]["1/4"] == 4 * 46 * level["margin"]
        assert [t["from_total"] for t in level["tables"]][1:] == level["table_thresholds"]


@pytest.mark.parametrize("error", ["0", "1"])
def test_other_relative_errors_are_refused(tmp_path, error: str) -> None:
    (tmp_path / "settings.toml").write_text(
        '[input]\nparameters = "p"\ndata = "d"\n[privacy]\ndataset = "d"\n'
        f'[explorer]\nrelative_errors = ["{error}"]\n'
    )
    with pytest.raises(InputRefused, match="relative_errors must be above 0 and below 1"):
        load_settings(DetailedGroupsSettings, tmp_path / "settings.toml", presets=tmp_path)
