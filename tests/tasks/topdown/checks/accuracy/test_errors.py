from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.topdown.checks.accuracy.errors import (
    ABSOLUTE_QUANTILES,
    ERROR_QUANTILES,
    SIZE_LIMITS,
    Columns,
    concatenate_columns,
    criterion_of,
    error_rows,
    figures_of,
    largest_groups,
    size_class_names,
    tally,
)


def pairs(truth, released, variance=0.0) -> Columns:
    """The tally of entities, of all of whose answers one row is each."""
    truth, released = (np.atleast_2d(np.asarray(x).T).T for x in (truth, released))
    is_pair = np.ones(truth.shape, dtype=bool)
    return tally(truth, released, np.broadcast_to(variance, truth.shape), is_pair, truth[:, 0])


def redistricting_criterion(truth: np.ndarray, released: np.ndarray) -> dict[str, float | bool]:
    return criterion_of(largest_groups(truth, released))


def test_statistics_by_hand() -> None:
    figures = figures_of(pairs([0, 0, 10, 100, 4], [0, 6, 9, 111, 0], 9.0))
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


def test_statistics_of_nothing_are_not_numbers() -> None:
    figures = figures_of(pairs([], []))
    assert figures.pop("pairs") == 0
    assert all(np.isnan(value) for value in figures.values())
    only_zeros = figures_of(pairs([0], [0]))
    assert np.isnan(only_zeros["false_zeros"]) and only_zeros["false_positives"] == 0


def test_size_classes_begin_at_their_limits() -> None:
    sizes = np.array([0, 1, 9, 10, 499, 500, 99_999, 100_000])
    assert len(size_class_names()) == len(SIZE_LIMITS) + 1
    rows = {row["size_class"]: row["pairs"] for row in error_rows(pairs(sizes, sizes), {}, ["n"])}
    assert rows == {
        "all": 8,
        "0": 1,
        "1 to 9": 2,
        "10 to 99": 1,
        "100 to 499": 1,
        "500 to 999": 1,
        "10,000 to 99,999": 1,
        "100,000 and more": 1,
    }


def test_entities_are_counted_once_however_many_pairs_they_have() -> None:
    truth = np.array([[0, 3], [2, 9], [5, 5]])
    is_pair = np.array([[False, True], [True, True], [False, False]])
    found = tally(truth, truth + 1, np.full((3, 2), np.nan), is_pair, truth[:, 1])
    rows = list(error_rows(found, {"level": "block"}, ["a", "b"]))
    assert [(r["answer"], r["size_class"], r["entities"], r["pairs"]) for r in rows] == [
        ("all", "all", 2, 3),
        ("all", "1 to 9", 2, 3),
        ("a", "all", 1, 1),
        ("b", "all", 2, 2),
    ]
    assert all(np.isnan(row["predicted_standard_deviation"]) for row in rows)


def test_figures_of_parts_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(7)
    truth = rng.integers(0, 30, size=(818, 3))
    released = np.maximum(truth + rng.integers(-9, 10, size=truth.shape), 0)
    variance, error = rng.random(truth.shape), released - truth
    ends = [0, 0, 1, 41, 818]
    parts = [
        pairs(truth[a:b], released[a:b], variance[a:b])
        for a, b in zip(ends, ends[1:], strict=False)
    ]
    found = figures_of(concatenate_columns(parts))
    assert found == pytest.approx(figures_of(pairs(truth, released, variance)), rel=1e-12)
    for name, values, quantiles in (
        ("absolute", np.abs(error), ABSOLUTE_QUANTILES),
        ("error", error, ERROR_QUANTILES),
    ):
        for quantile in quantiles:
            key = f"{name}_q{round(100 * quantile):02d}"
            assert found[key] == pytest.approx(np.quantile(values, quantile))
    assert found["predicted_standard_deviation"] == pytest.approx(variance.mean() ** 0.5)


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


def test_criterion_without_large_entities_is_met() -> None:
    found = redistricting_criterion(np.array([[1, 2]]), np.array([[9, 0]]))
    assert found["entities"] == 0 and found["met"] and np.isnan(found["share_within"])
