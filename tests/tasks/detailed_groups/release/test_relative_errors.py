"""Populations from which tables are accurate, against the margins that define them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.release.figures import table_populations
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget
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


@pytest.mark.parametrize("error", ["0", "1"])
def test_other_relative_errors_are_refused(tmp_path, error: str) -> None:
    (tmp_path / "settings.toml").write_text(
        '[input]\nparameters = "p"\ndata = "d"\n[privacy]\ndataset = "d"\n'
        f'[explorer]\nrelative_errors = ["{error}"]\n'
    )
    with pytest.raises(InputRefused, match="relative_errors must be above 0 and below 1"):
        load_settings(DetailedGroupsSettings, tmp_path / "settings.toml", presets=tmp_path)
