"""Which groups are suppressed, rule by rule."""

from __future__ import annotations

from fractions import Fraction

import pytest
from spineflow.tasks.detailed_groups.postprocess import MEASURED, SCREENED, suppress, threshold_of
from spineflow.tasks.noise.distributions import IntegerDistribution

NOISE = IntegerDistribution(Fraction("0.008") * Fraction(9, 10) / 9, 2)


def test_only_totals_of_the_second_stage_at_or_below_the_threshold(measured) -> None:
    table = measured(
        [
            {"value": [10]},
            {"value": [11]},
            {"value": [-3]},
            {"value": [-3], "total_only": True},
            {"value": [0] * 8, "table": 1},
        ]
    )
    screened = suppress(table, 10)
    assert screened["is_suppressed"].to_pylist() == [True, False, True, False, False]
    assert screened.schema.names == SCREENED.names
    assert screened.select(MEASURED.names).equals(table)
    assert screened["measured_at"].to_pylist() == ["TRACT"] * 5


def test_no_threshold_suppresses_nothing(measured) -> None:
    screened = suppress(measured([{"value": [-100]}]), None)
    assert screened["is_suppressed"].to_pylist() == [False]


@pytest.mark.parametrize(
    ("chance", "threshold"), [("0.9999", 93), ("0.5", 0), ("0", None), ("0.2", -21)]
)
def test_threshold_of_a_chance(chance: str, threshold: int | None) -> None:
    assert threshold_of("TRACT", NOISE, Fraction(chance)) == threshold


def test_without_noise_only_counts_above_zero_are_shown() -> None:
    assert threshold_of("TRACT", None, Fraction("0.9999")) == 0
    assert threshold_of("TRACT", None, Fraction(0)) is None


@pytest.mark.parametrize("region_type", ["USA", "STATE", "PR-STATE"])
def test_nation_and_states_are_never_suppressed(region_type: str) -> None:
    assert threshold_of(region_type, NOISE, Fraction("0.9999")) is None
    assert threshold_of("PR-COUNTY", NOISE, Fraction("0.9999")) == 93
    assert threshold_of("COUNTY", NOISE, None) is None
