"""The order of a run's steps, as it is told to Prefect."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

from prefect.futures import PrefectConcurrentFuture
from spineflow.flows.order import awaited
from spineflow.flows.runners import InOrder
from spineflow.tasks.products.order import call, shared

STEP = cast(Any, "a step")


def test_of_stages_that_have_ended_one_call_is_awaited() -> None:
    charged = call(STEP, "charge")
    measured = [call(STEP, "measure", number) for number in range(500)]
    above = [call(STEP, "estimate", "County", number) for number in range(500)]
    beside = [call(STEP, "constrain", number) for number in range(3)]
    ended = {charged: "ledger"}
    ended |= dict.fromkeys(measured, "measure") | dict.fromkeys(above, "estimate County")
    after = [*measured, charged, *beside, *above]
    assert awaited(after, ended) == [measured[0], charged, *beside, above[0]]


def test_what_has_not_ended_is_awaited_whole() -> None:
    measured = [call(STEP, "measure", number) for number in range(5)]
    assert awaited(measured, {}) == measured


def test_tasks_that_wait_hold_up_none_behind_them() -> None:
    """However many wait, those that wait for nothing more are begun, in their order."""
    still, ended = concurrent.futures.Future[int](), concurrent.futures.Future[int]()
    ended.set_result(0)
    waited_for, done = (PrefectConcurrentFuture(uuid4(), one) for one in (still, ended))
    begun: list[int] = []

    def begin(number: int, wait_for: Sequence[PrefectConcurrentFuture]) -> None:
        for one in wait_for:
            one.wrapped_future.result()
        begun.append(number)

    threads = InOrder()
    try:
        late = [threads.submit(begin, n, wait_for=[done, waited_for]) for n in range(8)]
        at_once = [threads.submit(begin, n, wait_for=[done]) for n in range(8, 40)]
        concurrent.futures.wait(at_once)
        assert begun == list(range(8, 40))
        still.set_result(0)
        concurrent.futures.wait(late)
        assert sorted(begun[32:]) == list(range(8))
    finally:
        threads.shutdown()


def test_small_calls_of_a_step_share_a_task() -> None:
    """But none that waits for what is not among them, which would wait for them in turn."""
    above = call(STEP, "estimate", "US", is_small=True)
    large = call(STEP, "estimate", "Block", after=[above])
    below = call(STEP, "estimate", "State", after=[above], is_small=True)
    later = call(STEP, "estimate", "County", after=[large, below], is_small=True)
    other = call(cast(Any, "another step"), "measure", is_small=True)
    assert shared([above, large, below, other, later]) == [
        [above, below],
        [large],
        [other],
        [later],
    ]
    assert shared([large, later]) == [[large], [later]]
    ended = call(STEP, "constrain")
    waiting = call(STEP, "estimate", "US", after=[ended], is_small=True)
    assert shared([waiting, above]) == [[waiting, above]], "what is not new has been submitted"
