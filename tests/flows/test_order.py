"""The order of a run's steps, as it is told to Prefect."""

from __future__ import annotations

from typing import Any, cast

from spineflow.flows.order import awaited
from spineflow.tasks.products.order import call

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
