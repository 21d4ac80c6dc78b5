"""Two directories, dead workers, missing charges: at most one published noise for every charge."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from fractions import Fraction

import pytest
from spineflow.tasks.ledger.accounting import Guarantee
from spineflow.tasks.ledger.charging import claim, move, record_publication, verify_published
from spineflow.tasks.ledger.plan import Measure, UniversePlan
from spineflow.tasks.ledger.store import Ledger, open_ledger, reading
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, Noise
from spineflow.tasks.runs.errors import BudgetRefused

from tests.tasks.ledger.charged_runs import charge_run

RUN, HERE, ELSEWHERE, FILE = "run-1", "here", "elsewhere", "measurements/0.parquet"
NOISE = Noise(DISCRETE_GAUSSIAN, Fraction(10))


def drawn(noise: Noise, answers: int | None = 5) -> UniversePlan:
    measures = (Measure("Block/total", noise, answers=answers),)
    return UniversePlan("persons", noise.mechanism, Guarantee("zcdp", Fraction(1)), None, measures)


DRAW = drawn(NOISE)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    ledger = open_ledger(tmp_path / "ledger.db")
    enter(ledger)
    return ledger


def enter(ledger: Ledger, **changes) -> bool:
    files = {"settings.toml": "s", "spine/blocks.parquet": "b"}
    asked = {"draws": [DRAW], "files": files, "directory": (HERE, None), **changes}
    return charge_run(ledger, RUN, **asked)


def claimed(ledger: Ledger, identity: str = HERE, name: str = FILE, **changes):
    return claim(
        ledger, **{"run_id": RUN, "identity": identity, "name": name, "draw": "persons", **changes}
    )


def test_a_copy_of_a_directory_draws_nothing(ledger: Ledger) -> None:
    claimed(ledger)
    for name in (FILE, "measurements/1.parquet"):
        with pytest.raises(BudgetRefused, match="draws in another directory .*ledger move"):
            claimed(ledger, ELSEWHERE, name)


def test_of_two_copies_one_can_be_made_the_one(ledger: Ledger) -> None:
    first = claimed(ledger)
    move(ledger, RUN, ELSEWHERE)
    with pytest.raises(BudgetRefused, match="draws in another directory"):
        record_publication(ledger, first, "drawn by the first")
    record_publication(ledger, claimed(ledger, ELSEWHERE), "drawn by the second")
    with pytest.raises(BudgetRefused, match="draws in another directory"):
        claimed(ledger)
    with pytest.raises(BudgetRefused, match="holds no charge of run other"):
        move(ledger, "other", HERE)


def test_what_was_claimed_and_not_recorded_is_drawn_anew(ledger: Ledger) -> None:
    """A worker died before anybody can have seen what it drew."""
    claimed(ledger)
    record_publication(ledger, claimed(ledger), "aa")
    assert claimed(ledger).published == "aa"


def test_a_worker_that_was_taken_for_dead_cannot_record(ledger: Ledger) -> None:
    """Threat model: a worker taken for dead returns."""
    lost, rerun = claimed(ledger), claimed(ledger)
    with pytest.raises(BudgetRefused, match="taken over by another worker"):
        record_publication(ledger, lost, "aa")
    record_publication(ledger, rerun, "bb")
    with pytest.raises(BudgetRefused, match="taken over by another worker"):
        record_publication(ledger, lost, "aa")
    assert claimed(ledger).published == "bb"


def test_recorded_noise_is_never_drawn_again(ledger: Ledger) -> None:
    record_publication(ledger, claimed(ledger), "aa")
    again = claimed(ledger)
    with pytest.raises(BudgetRefused, match="never drawn again"):
        again.draw("Block/total", NOISE, 5)


def test_a_draw_needs_its_charge_at_that_moment(ledger: Ledger, tmp_path) -> None:
    other = open_ledger(tmp_path / "other.db")
    with pytest.raises(BudgetRefused, match="holds no charge for draw 'persons' of run run-1"):
        claimed(other)
    with pytest.raises(BudgetRefused, match="holds no charge for draw 'units'"):
        claimed(ledger, draw="units")


@pytest.mark.parametrize(
    ("part", "noise"),
    [
        ("Block/total", Noise(DISCRETE_GAUSSIAN, Fraction(10) - Fraction(1, 10**12))),
        ("Block/total", Noise(DISCRETE_GAUSSIAN, Fraction(1, 10**6))),
        ("Block/total", Noise(DISCRETE_LAPLACE, Fraction(10))),
        ("Tract/total", NOISE),
    ],
)
def test_only_the_charged_noise_is_drawn(ledger: Ledger, part: str, noise: Noise) -> None:
    """Threat model: noise that was not charged."""
    draws = claimed(ledger)
    with pytest.raises(BudgetRefused, match="was not charged for"):
        draws.draw(part, noise, 5)
    assert draws.n_drawn == 0
    assert draws.draw("Block/total", NOISE, 5).shape == (5,)


def test_more_values_than_charged_are_not_recorded(ledger: Ledger) -> None:
    """Threat model: noise that was not charged."""
    record_publication(ledger, replace(claimed(ledger), n_drawn=4), "aa")
    second = claimed(ledger, name="measurements/1.parquet")
    with pytest.raises(BudgetRefused, match="charged for 5 noisy values of 'persons' and has dra"):
        record_publication(ledger, replace(second, n_drawn=2), "bb")
    record_publication(ledger, replace(second, n_drawn=1), "bb")


@pytest.mark.parametrize(("charged", "kept"), [(5, 4), (None, 0)])
def test_a_number_of_values_that_was_not_charged_is_not_kept(tmp_path, charged, kept) -> None:
    """A histogram of what occurs has as many values as there are cells with somebody.

    Threat model: confidential numbers in public counts.
    """
    ledger = open_ledger(tmp_path / "ledger.db")
    enter(ledger, draws=[drawn(NOISE, charged)])
    record_publication(ledger, replace(claimed(ledger), n_drawn=4), "aa")
    with reading(ledger) as connection:
        assert connection.execute("SELECT n_values FROM published").fetchone()[0] == kept


def test_what_decides_a_draw_is_compared_with_what_was_published(ledger: Ledger) -> None:
    record_publication(ledger, claimed(ledger), "aa")
    name = "measurements/1.parquet"
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        claimed(ledger, name=name, reads={FILE: "bb"})
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        claimed(ledger, name=name, reads={"measurements/2.parquet": "aa"})
    assert claimed(ledger, name=name, reads={FILE: "aa"}).published is None


def test_a_charge_is_for_these_files_and_this_noise(ledger: Ledger) -> None:
    assert enter(ledger) is False
    for files in (
        {"settings.toml": "other", "spine/blocks.parquet": "b"},
        {"settings.toml": "s"},
        {"settings.toml": "s", "spine/blocks.parquet": "b", "plan.json": "p"},
    ):
        with pytest.raises(BudgetRefused, match="was charged with another"):
            enter(ledger, files=files)
    draws = [drawn(Noise(DISCRETE_GAUSSIAN, Fraction(11)))]
    with pytest.raises(BudgetRefused, match="with other noise at Block/total"):
        enter(ledger, draws=draws)


def test_files_are_held_against_the_ledger(ledger: Ledger) -> None:
    record_publication(ledger, claimed(ledger), "aa")
    assert verify_published(ledger, RUN, HERE, {FILE: "aa"}, [FILE]) == {}
    assert verify_published(ledger, RUN, HERE, {}, [FILE]) == {FILE: "aa"}
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        verify_published(ledger, RUN, HERE, {FILE: "bb"}, [FILE])
    with pytest.raises(BudgetRefused, match="the ledger does not know it"):
        verify_published(ledger, RUN, HERE, {FILE: "aa", "x": "bb"}, [FILE, "x"])


def test_a_copy_of_a_measured_directory_is_a_copy_only_where_it_would_draw(ledger: Ledger) -> None:
    record_publication(ledger, claimed(ledger), "aa")
    assert verify_published(ledger, RUN, ELSEWHERE, {FILE: "aa"}, [FILE]) == {}
    with pytest.raises(BudgetRefused, match="draws in another directory"):
        verify_published(ledger, RUN, ELSEWHERE, {FILE: "aa"}, [FILE, "measurements/1.parquet"])


def test_files_of_a_run_whose_draws_were_deleted_are_refused(ledger: Ledger) -> None:
    """Threat model: rows of a run deleted from the ledger."""
    record_publication(ledger, claimed(ledger), "aa")
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        for table in ("draws", "published", "directories", "conditions", "noise"):
            connection.execute(f"DELETE FROM {table}")
    with pytest.raises(BudgetRefused, match="does not hold the charges of run run-1; restore"):
        verify_published(ledger, RUN, HERE, {FILE: "aa"}, [FILE])


def test_another_cut_of_what_was_published_is_refused(ledger: Ledger) -> None:
    record_publication(ledger, claimed(ledger), "aa")
    with pytest.raises(BudgetRefused, match="which its spine or plan no longer has"):
        verify_published(ledger, RUN, HERE, {}, ["measurements/0_of_2.parquet"])


def test_a_run_whose_directory_was_deleted_draws_only_where_it_is_moved(ledger: Ledger) -> None:
    """Threat model: rows of a run deleted from the ledger."""
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute("DELETE FROM directories")
    enter(ledger)
    with pytest.raises(BudgetRefused, match="the ledger does not know it"):
        verify_published(ledger, RUN, HERE, {FILE: "aa"}, [FILE])
    with pytest.raises(BudgetRefused, match="draws in another directory"):
        claimed(ledger)
    move(ledger, RUN, HERE)
    assert claimed(ledger).published is None
