"""What is left of a run: on hand-made runs, and on recorded ones that are told again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from spineflow.tasks.runs.costs import REUSED, Costs, Rate
from spineflow.tasks.runs.remaining import Remaining
from spineflow.tasks.runs.schedule import Job, schedule
from spineflow.tasks.runs.work import Planned, Task

from benchmarks.rates import fitted
from tests.tasks.runs.test_work import task

RECORDED = Path(__file__).parent / "recorded"
"""Work of finished runs, as `benchmarks/recorded.py` shortens them."""


def planned(name: str, wave: int, *, step: str = "a", size: float = 1e6, **other) -> Planned:
    return Planned(name, f"stage {step}", step, wave, other.get("aside", False), (), size)


def test_what_is_left_is_the_makespan_of_what_is_to_come() -> None:
    remaining = Remaining(2, Costs({"a": Rate(0.0, 10.0)}))
    waves = [[planned(f"{wave}{n}", wave) for n in range(3)] for wave in range(2)]
    remaining.begin(waves[0], at=0.0)
    assert remaining.left(0.0) is None
    remaining.plan([task for wave in waves for task in wave])
    # Three tasks of ten seconds on two workers take twenty, in both waves; half a second between.
    assert remaining.left(0.0) == pytest.approx(40.5, abs=0.3)
    assert remaining.left(4.0) == pytest.approx(36.5, abs=0.3)
    remaining.ended("00", 10.0, 10.0)
    remaining.ended("01", 10.0, 10.0)
    assert remaining.left(10.0) == pytest.approx(30.5, abs=0.3)


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
    assert remaining.left(50.0) == pytest.approx(5.0, abs=0.3)


def test_a_step_that_the_table_lacks_costs_what_tasks_cost() -> None:
    costs = Costs({"a": Rate(0.0, 10.0)})
    costs.observe("a", 1e6, 8.0)
    costs.observe("a", 1e6, 12.0)
    assert costs.seconds("new", 5.0) == pytest.approx(10.0)
    costs.observe("new", 5.0, 3.0)
    assert costs.seconds("new", 5.0) == pytest.approx(3.0)
    assert costs.seconds("new", 10.0) == pytest.approx(6.0)
    assert costs.seconds("a", 1e6) == pytest.approx(10.0)


def test_what_an_earlier_attempt_left_costs_next_to_nothing() -> None:
    rates = {"a": Rate(0.0, 10.0), "check": Rate(0.0, 20.0, again=True)}
    tasks = [planned("a 0", 0), planned("a 1", 0), planned("check", 1, step="check")]
    remaining = Remaining(1, Costs(rates), {"a 0", "check"})
    remaining.plan(tasks)
    assert remaining.left(0.0) == pytest.approx(REUSED + 10.0 + 0.5 + 20.0, abs=0.3)
    # One that was found, but not reused, tells that its step does its work again.
    remaining.begin(tasks[:2], at=0.0)
    remaining.ended("a 0", 10.0, 10.0)
    assert remaining.found == {"check"}


def test_rates_are_found_in_the_work_that_they_made() -> None:
    made: list[Task] = [
        task(f"t{n}", step="a", size=n * 1e6, cpu=2.0 + 3.0 * n) for n in range(1, 9)
    ]
    assert fitted(made) == {"a": Rate(2.0, 3.0)}


def recorded(name: str) -> list[Task]:
    """The tasks of a finished run, as `benchmarks/recorded.py` wrote them."""
    rows = json.loads((RECORDED / name).read_text(encoding="utf-8"))["tasks"]
    names = ("name", "stage", "step", "wave", "aside", "size")
    times = ("begun", "ended", "started", "seconds", "cpu", "worker")
    return [task(**dict(zip((*names, *times), row, strict=True)), after=()) for row in rows]


def on_an_idle_machine(tasks: list[Task], workers: int, slowness: float) -> list[Task]:
    """When tasks would have run that take their processor seconds times a slowness.

    The machine on which they were recorded had other work to do, now more and now less.
    """
    jobs = [Job(t.name, max(t.cpu, 0.02) * slowness, t.wave, t.aside) for t in tasks]
    made = schedule(jobs, workers, per_task=0.05, per_wave=0.3)
    seconds = {job.name: job.seconds for job in jobs}
    wave = {t.wave: [o.name for o in tasks if o.wave == t.wave] for t in tasks}
    return [
        replace(
            t,
            begun=min(made.begun[name] for name in wave[t.wave]),
            # Of what ran aside, the end is heard of at the end.
            ended=made.makespan if t.aside else made.ended[t.name],
            started=made.begun[t.name],
            seconds=seconds[t.name],
            worker="",
        )
        for t in tasks
    ]


def told_and_good(tasks: list[Task], workers: int, costs: Costs) -> tuple[float, float]:
    """Shares of the instants, from a tenth of the way on, that are told, and told within 20 %.

    What is to come is known once the spines are, as in a run.
    """
    plan = [Planned(t.name, t.stage, t.step, t.wave, t.aside, t.after, t.size) for t in tasks]
    waves: dict[int, list[Planned]] = {}
    for one in plan:
        waves.setdefault(one.wave, []).append(one)
    begun = {t.wave: t.begun for t in tasks}
    events = [(begun[number], 1, number) for number in waves]
    events += [(t.ended, 0, place) for place, t in enumerate(tasks)]
    events.sort()
    remaining = Remaining(workers, costs)
    end = max(t.ended for t in tasks)
    told = good = 0
    for instant in range(INSTANTS // 10, INSTANTS):
        now = end * instant / INSTANTS
        while events and events[0][0] <= now:
            at, begins, which = events.pop(0)
            if begins:
                remaining.begin(waves[which], at)
                if which == LEDGER:
                    remaining.plan(plan)
            else:
                t = tasks[which]
                remaining.ended(t.name, at, t.seconds)
        left = remaining.left(now)
        told += left is not None
        good += left is not None and abs(left - (end - now)) <= 0.2 * (end - now)
    return told / (0.9 * INSTANTS), good / (0.9 * INSTANTS)


INSTANTS = 200

LEDGER = 2
"""The wave after those of the spines."""


@pytest.mark.parametrize(("workers", "least"), [(1, 0.7), (2, 0.8), (4, 0.8)])
@pytest.mark.parametrize("slowness", [1.1, 4.0])
def test_the_time_left_of_a_recorded_run_is_right_within_a_fifth(
    workers: int, least: float, slowness: float
) -> None:
    """The rates are not of this run alone, but of one that is fifty times larger as well."""
    tasks = on_an_idle_machine(recorded("nation_50.json"), workers, slowness)
    told, good = told_and_good(tasks, workers, Costs())
    assert told > 0.9
    assert good >= least


def test_without_a_table_of_rates_the_time_left_is_told_and_worse() -> None:
    tasks = on_an_idle_machine(recorded("nation_50.json"), 2, 1.1)
    told, good = told_and_good(tasks, 2, Costs({}))
    assert told > 0.9
    assert good < told_and_good(tasks, 2, Costs())[1]
