"""The plays of `tests.flows.outages`: what is taken from a run in its middle, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flows.outages import PLAYS, Unplayable, World

# Servers that are killed need a quiet machine: no other session draws these.
pytestmark = [pytest.mark.slow, pytest.mark.soak(600)]


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
