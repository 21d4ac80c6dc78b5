"""m trips a person: what is counted against it, and which trips are kept where there are more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chi2
from spineflow.tasks.noise.distributions import SystemRandom
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.tables.value_tallies import ValueTally
from spineflow.tasks.trips.ingest.ingest import PersonTrips, check_contributions

from tests.tasks.trips.privacy import privacy_of

PERSON = np.array([0, 0, 0, 1, 2, 2, 2])
KEYS = np.array([7, 7, 9, 7, 3, 5, 8])


def trips(counts=None) -> PersonTrips:
    counts = np.ones(7, dtype=np.int64) if counts is None else np.array(counts)
    return PersonTrips(PERSON, KEYS, counts)


def kept(rows: PersonTrips, most: int, *, are_distinct: bool = False) -> dict[int, int]:
    found = rows.sample_trips(privacy_of(True, most, are_distinct), SystemRandom())
    return dict(zip(found.keys.tolist(), found.counts.tolist(), strict=True))


def test_no_more_than_the_most_of_a_person_are_kept() -> None:
    for most, total in ((1, 3), (2, 5), (3, 7), (9, 7)):
        assert sum(kept(trips(), most).values()) == total
    assert kept(trips(), 3) == {3: 1, 5: 1, 7: 3, 8: 1, 9: 1}
    assert kept(trips([50, 1, 0, 4, 0, 0, 0]), 100) == {7: 55}
    assert kept(trips([500, 1, 0, 4, 0, 0, 0]), 100) == {7: 104}


def test_of_distinct_trips_one_a_cell_is_kept() -> None:
    assert kept(trips(), 3, are_distinct=True) == {3: 1, 5: 1, 7: 2, 8: 1, 9: 1}
    assert sum(kept(trips(), 1, are_distinct=True).values()) == 3


@pytest.mark.slow
def test_every_choice_of_the_trips_is_as_likely() -> None:
    """Of five trips two stay: ten choices. A choice that is a tenth likelier would be seen."""
    n = 200_000
    person = np.repeat(np.arange(n), 5)
    cells = np.tile(np.arange(5), n) + 5 * person
    found = PersonTrips(person, cells, np.ones(5 * n, dtype=np.int64)).sample_trips(
        privacy_of(True, 2), SystemRandom()
    )
    assert (found.counts == 1).all()
    assert (np.bincount(found.keys // 5, minlength=n) == 2).all()
    pairs = (found.keys % 5).reshape(n, 2)
    names = {pair: i for i, pair in enumerate(itertools.combinations(range(5), 2))}
    seen = np.bincount([names[tuple(pair)] for pair in pairs.tolist()], minlength=10)

    def statistic(expected: np.ndarray) -> float:
        return float(((seen - expected) ** 2 / expected).sum())

    limit = chi2.ppf(1 - 1e-6, 9)
    even = np.full(10, n / 10)
    assert statistic(even) < limit
    uneven = even.copy()
    uneven[0] *= 1.1
    assert statistic(uneven * n / uneven.sum()) > limit


@pytest.mark.slow
def test_tables_that_differ_in_one_person_differ_in_at_most_their_trips() -> None:
    """Whatever is drawn, the others' trips may be drawn alike: a change moves at most m of each."""

    class Fixed:
        def read(self, n_bytes: int) -> bytes:
            return np.arange(n_bytes // 8, dtype="<u8").tobytes()

    others = PersonTrips(np.array([0, 0, 0]), np.array([1, 1, 4]), np.ones(3, dtype=np.int64))
    for most in (1, 2):
        for one, two in itertools.product(itertools.product(range(3), repeat=3), repeat=2):
            levels = []
            for cells in (one, two):
                rows = PersonTrips(
                    np.concatenate([others.person, np.ones(3, dtype=np.int64)]),
                    np.concatenate([others.keys, np.array(cells)]),
                    np.ones(6, dtype=np.int64),
                )
                found = rows.sample_trips(privacy_of(True, most), Fixed())
                levels.append(np.bincount(found.keys, found.counts, minlength=6))
            change = levels[0] - levels[1]
            assert np.abs(change).sum() <= 2 * most
            assert (change**2).sum() <= 2 * most**2


@pytest.mark.parametrize(
    ("settings", "broken"),
    [
        ({"trips": 3}, {}),
        ({"trips": 2}, {"trips_per_person_are_few": 2}),
        ({"trips": 3, "are_distinct": True}, {"trips_are_distinct": 1}),
        ({"trips": 3, "are_distinct": True, "excess_trips": "dropped"}, {}),
        ({"trips": 2, "excess_trips": "dropped"}, {}),
        ({"trips": 3, "is_exact": True}, {"trips_per_person_are_exact": 1}),
        ({"trips": 1, "is_exact": True, "excess_trips": "dropped"}, {}),
        (
            {"trips": 3, "is_exact": True, "are_distinct": True, "excess_trips": "dropped"},
            {"trips_per_person_are_exact": 2},
        ),
    ],
)
def test_persons_who_break_a_rule_are_counted(settings, broken) -> None:
    tally = ValueTally()
    privacy = privacy_of(**{"is_exact": False} | settings)
    check_contributions(trips(), "trips", "pid", privacy, tally)
    outcomes = tally.outcomes(tally.rules)
    assert {outcome.name for outcome in outcomes if not outcome.passed} == set(broken)
    files = {"trips": (InputFile("trips", "", "t.csv"),)}
    found = tally.findings(tally.rules, files)
    assert [finding.count for finding in found] == list(broken.values())
