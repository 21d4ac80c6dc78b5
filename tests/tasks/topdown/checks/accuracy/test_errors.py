from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.topdown.checks.accuracy.errors import (
    SIZE_LIMITS,
    LargestGroups,
    Pairs,
    Tally,
    criterion_of,
    figures_of,
    size_class_names,
    size_classes,
)


def pairs(truth, released, variance=0.0) -> Pairs:
    truth = np.asarray(truth)
    return Pairs(truth, np.asarray(released), np.full(truth.shape, variance))


def statistics(of: Pairs) -> dict[str, float]:
    return figures_of([Tally.of(of)])


def redistricting_criterion(truth: np.ndarray, released: np.ndarray) -> dict[str, float | bool]:
    return criterion_of([LargestGroups.of(truth, released)])


def test_statistics_by_hand() -> None:
    figures = statistics(pairs([0, 0, 10, 100, 4], [0, 6, 9, 111, 0], 9.0))
    assert figures["pairs"] == 5
    assert figures["mean_absolute_error"] == pytest.approx((6 + 1 + 11 + 4) / 5)
    assert figures["bias"] == pytest.approx((6 - 1 + 11 - 4) / 5)
    assert figures["root_mean_square_error"] == pytest.approx(((36 + 1 + 121 + 16) / 5) ** 0.5)
    assert figures["predicted_standard_deviation"] == pytest.approx(3.0)
    assert figures["mean_absolute_percent_error"] == pytest.approx((10 + 11 + 100) / 3)
    assert figures["largest"] == 11
    assert figures["absolute_q50"] == 4
    assert figures["error_q50"] == 0
    assert figures["beyond_1"] == pytest.approx(3 / 5)
    assert figures["beyond_5"] == pytest.approx(2 / 5)
    assert figures["beyond_10_percent"] == pytest.approx(2 / 3)
    assert figures["false_zeros"] == pytest.approx(1 / 3)
    assert figures["false_positives"] == pytest.approx(1 / 2)


def test_size_classes_begin_at_their_limits() -> None:
    names = size_class_names()
    assert len(names) == len(SIZE_LIMITS) + 1
    classes = size_classes(np.array([0, 1, 9, 10, 499, 500, 99_999, 100_000]))
    assert [names[number] for number in classes] == [
        "0",
        "1 to 9",
        "1 to 9",
        "10 to 99",
        "100 to 499",
        "500 to 999",
        "10,000 to 99,999",
        "100,000 and more",
    ]


def test_criterion_takes_the_truly_largest_group_of_large_entities() -> None:
    truth = np.array([[300, 200], [200, 300], [499, 0], [250, 250]])
    released = np.array([[325, 175], [200, 250], [0, 400], [0, 0]])
    found = redistricting_criterion(truth, released)
    # Exactly 5 points; 4.4 points the other way; too small; nobody released.
    assert found["entities"] == 3
    assert found["share_within"] == pytest.approx(2 / 3)
    assert not found["met"]
    assert redistricting_criterion(truth[:3], released[:3])["met"]


def test_criterion_is_met_at_95_percent() -> None:
    truth = np.full((20, 2), [400, 200])
    released = truth.copy()
    released[0] = [200, 400]
    found = redistricting_criterion(truth, released)
    assert found["share_within"] == 0.95 and found["met"]
    released[1] = [200, 400]
    assert not redistricting_criterion(truth, released)["met"]
