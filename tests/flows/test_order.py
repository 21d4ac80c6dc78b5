"""The order of a run's steps, as it is told to Prefect."""

from __future__ import annotations

from typing import Any, cast

from spineflow.flows.order import awaited
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
