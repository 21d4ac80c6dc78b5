"""The plays of `tests.flows.outages`: what is taken from a run in its middle, and how it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.flows.outages import PLAYS, Unplayable, World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.skipif(
        "SPINEFLOW_SOAK" not in os.environ,
        reason="servers that are killed need a quiet machine; make soak plays them all",
    ),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("outages"))
    yield made
    made.server.stop()


@pytest.mark.parametrize("name", PLAYS)
def test_a_run_goes_on_or_is_held(world: World, name: str) -> None:
    try:
        assert PLAYS[name](world)
    except Unplayable as reason:
        pytest.skip(str(reason))
