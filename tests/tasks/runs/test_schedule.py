"""List scheduling against brute force, and what shared processors and storage cost."""

from __future__ import annotations

import random

import pytest
from spineflow.tasks.runs.schedule import Job, schedule


def by_small_steps(jobs: list[Job], workers: int) -> dict[str, int]:
    """Ends of jobs of whole seconds, second by second: a worker takes the next job of an open wave,
    and keeps it until it has ended, also while it waits."""
    left = {job.name: int(job.seconds) for job in jobs}
    ended: dict[str, int] = {}
    taken: list[Job] = []
    now = 0
    while len(ended) < len(jobs):
        for job in jobs:
            is_open = all(j.name in ended for j in jobs if j.wave < job.wave and not j.aside)
            is_new = job not in taken and job.name not in ended
            if is_new and is_open and len(taken) < workers:
                taken.append(job)
        now += 1
        working = [job for job in taken if all(name in ended for name in job.after)]
        for job in working:
            left[job.name] -= 1
        for job in working:
            if not left[job.name]:
                taken.remove(job)
                ended[job.name] = now
    return ended


@pytest.mark.parametrize("seed", range(30))
def test_jobs_end_when_they_do_second_by_second(seed: int) -> None:
    draw = random.Random(seed)
    jobs = [
        Job(
            str(n),
            draw.randint(1, 5),
            wave=n // 6,
            aside=draw.random() < 0.1,
            after=tuple(str(b) for b in range(n) if draw.random() < 0.1),
        )
        for n in range(24)
    ]
    # What is aside may not be waited for by what it does not delay in the brute force.
    aside = {job.name for job in jobs if job.aside}
    jobs = [
        Job(j.name, j.seconds, j.wave, j.aside, tuple(a for a in j.after if a not in aside))
        for j in jobs
    ]
    workers = draw.randint(1, 4)
    assert schedule(jobs, workers).ended == by_small_steps(jobs, workers)
    shared = schedule(jobs, workers, cores=1000).ended
    assert shared == pytest.approx(by_small_steps(jobs, workers))


def test_processors_are_shared() -> None:
    """Four workers on two processors: what computes takes twice as long, what waits does not."""
    computing = [Job(str(n), 10, cpu=10) for n in range(4)]
    waiting = [Job(str(n), 10, cpu=0) for n in range(4)]
    assert schedule(computing, 4, cores=2).makespan == pytest.approx(20)
    assert schedule(waiting, 4, cores=2).makespan == pytest.approx(10)
    assert schedule(computing, 2, cores=2).makespan == pytest.approx(20)
    # No processor gives more seconds than pass.
    partly = [Job(str(n), 10, cpu=4) for n in range(4)]
    assert schedule(partly, 4, cores=1).makespan == pytest.approx(16)


def test_storage_is_shared() -> None:
    jobs = [Job(str(n), 10, moved=100) for n in range(4)]
    assert schedule(jobs, 4, bandwidth=20).makespan == pytest.approx(20)
    assert schedule(jobs, 4, bandwidth=40).makespan == pytest.approx(10)


def test_tasks_and_waves_cost_something() -> None:
    jobs = [Job(str(n), 1, wave=n // 2) for n in range(4)]
    assert schedule(jobs, 1, per_task=0.5, per_wave=2).makespan == pytest.approx(4 * 1.5 + 2)


def test_what_runs_aside_keeps_nobody_waiting() -> None:
    jobs = [Job("summary", 100, 0, aside=True), Job("a", 1, 0), Job("b", 1, 1)]
    ended = schedule(jobs, 2).ended
    assert ended == {"a": 1, "b": 2, "summary": 100}


@pytest.mark.parametrize("cores", [2.0, float("inf")])
def test_a_circle_is_refused(cores: float) -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        schedule([Job("a", 1, after=("b",)), Job("b", 1, after=("a",))], 2, cores=cores)
