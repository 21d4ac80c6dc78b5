"""What is left of a run: on hand-made runs, and on recorded ones that are told again."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.runs.costs import REUSED, Costs, Rate, fitted
from spineflow.tasks.runs.remaining import Planned, Remaining
from spineflow.tasks.runs.work import Task

from tests.tasks.runs.test_work import task

RECORDED = Path(__file__).parent / "recorded"
"""Work of finished runs, as `tests/benchmarks/recorded.py` shortens it."""


def planned(name: str, wave: int, *, step: str = "a", size: float = 1e6, **other) -> Planned:
    return Planned(name, f"stage {step}", step, wave, other.get("aside", False), (), size)


def test_what_is_left_is_the_makespan_of_what_is_to_come() -> None:
    remaining = Remaining(2, Costs({"a": Rate(0.0, 10.0)}))
    waves = [[planned(f"{wave}{n}", wave) for n in range(3)] for wave in range(2)]
    remaining.begin(waves[0], at=0.0)
    assert remaining.left(0.0) is None
    remaining.plan([task for wave in waves for task in wave])
    # Three tasks of ten seconds on two workers take twenty, in both waves; half a second between.
    assert remaining.left(0.0) == pytest.approx(40.5)
    assert remaining.left(4.0) == pytest.approx(36.5)
    remaining.ended("00", 10.0, 10.0)
    remaining.ended("01", 10.0, 10.0)
    assert remaining.left(10.0) == pytest.approx(30.5)


def test_tasks_that_take_longer_make_the_others_longer() -> None:
    remaining = Remaining(1, Costs({"a": Rate(0.0, 10.0), "b": Rate(0.0, 50.0)}))
    tasks = [planned(str(n), 0) for n in range(10)] + [planned("last", 0, step="b")]
    remaining.plan(tasks)
    remaining.begin(tasks, at=0.0)
    for n in range(10):
        remaining.ended(str(n), 30.0 * (n + 1), 30.0)
    left = remaining.left(300.0)
    assert left is not None and 130 < left <= 150


def test_a_task_that_is_late_has_something_left() -> None:
    remaining = Remaining(1, Costs({"a": Rate(0.0, 10.0)}))
    remaining.plan([planned("x", 0)])
    remaining.begin([planned("x", 0)], at=0.0)
    assert remaining.left(50.0) == pytest.approx(5.0)


def test_a_step_that_the_table_lacks_costs_what_tasks_cost() -> None:
    costs = Costs({"a": Rate(0.0, 10.0)})
    costs.observe("stage a", "a", 1e6, 8.0)
    costs.observe("stage a", "a", 1e6, 12.0)
    assert costs.seconds("new", "new", 5.0) == pytest.approx(10.0)
    costs.observe("new", "new", 5.0, 3.0)
    assert costs.seconds("new", "new", 5.0) == pytest.approx(3.0)
    assert costs.seconds("new", "new", 10.0) == pytest.approx(6.0)
    assert costs.seconds("stage a", "a", 1e6) == pytest.approx(10.0)


def test_what_an_earlier_attempt_left_costs_next_to_nothing() -> None:
    rates = {"a": Rate(0.0, 10.0), "check": Rate(0.0, 20.0, again=True)}
    tasks = [planned("a 0", 0), planned("a 1", 0), planned("check", 1, step="check")]
    remaining = Remaining(1, Costs(rates), {"a 0", "check"})
    remaining.plan(tasks)
    assert remaining.left(0.0) == pytest.approx(REUSED + 10.0 + 0.5 + 20.0)
    # One that was found, but not reused, tells that its step does its work again.
    remaining.begin(tasks[:2], at=0.0)
    remaining.ended("a 0", 10.0, 10.0)
    assert remaining.found == {"check"}


def test_rates_are_found_in_the_work_that_they_made() -> None:
    made: list[Task] = [
        task(f"t{n}", step="a", size=n * 1e6, seconds=2.0 + 3.0 * n) for n in range(1, 9)
    ]
    assert fitted(made) == {"a": Rate(2.0, 3.0)}


def replay(records: list[Task], workers: int) -> tuple[float, float]:
    """Shares of the instants, from a tenth of the way on, that are told, and told within 20 %.

    The plan is known as soon as the spines are.
    """
    order = sorted(records, key=lambda one: one.wave)
    plan = [Planned(t.name, t.stage, t.step, t.wave, t.aside, t.after, t.size) for t in order]
    first, last = min(t.begun for t in records), max(t.ended for t in records)
    remaining = Remaining(workers)
    events = sorted(
        [(wave[0].begun, 1, wave) for wave in waves_of(order)] + [(t.ended, 0, t) for t in records],
        key=lambda event: event[:2],
    )
    told = good = 0
    instants = 200
    place = 0
    for n in range(instants // 10, instants):
        at = first + (last - first) * n / instants
        while place < len(events) and events[place][0] <= at:
            when, begins, what = events[place]
            if begins:
                names = {t.name for t in what}
                remaining.begin([one for one in plan if one.name in names], when)
                if any("ledger" in t.stage for t in what):
                    remaining.plan(plan)
            else:
                remaining.ended(what.name, when, what.seconds)
            place += 1
        left = remaining.left(at)
        told += left is not None
        good += left is not None and abs(left - (last - at)) <= 0.2 * (last - at)
    return told / (0.9 * instants), good / (0.9 * instants)


def waves_of(order: list[Task]) -> list[list[Task]]:
    numbers = sorted({one.wave for one in order})
    return [[one for one in order if one.wave == number] for number in numbers]
