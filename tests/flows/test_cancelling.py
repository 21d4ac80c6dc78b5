"""Whether somebody has cancelled a run is asked of its server, and of no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import StateType
from spineflow.flows import endings
from spineflow.flows.endings import SUPERVISED, RunCancelled, refuse_if_cancelled, watched


class Server:
    """A server that tells a state of every flow run, asked so many times and perhaps away."""

    def __init__(self) -> None:
        self.states: list[StateType | None | Exception] = []
        self.asked: list[UUID] = []
        self.told: list[tuple[UUID, StateType, bool]] = []
        self.has_told_all = Event()

    def read_flow_run(self, flow_run_id: UUID) -> SimpleNamespace:
        self.asked.append(flow_run_id)
        state = self.states.pop(0) if self.states else StateType.RUNNING
        if not self.states:
            self.has_told_all.set()
        if isinstance(state, Exception):
            raise state
        return SimpleNamespace(state=None if state is None else SimpleNamespace(type=state))

    def set_flow_run_state(self, flow_run_id: UUID, state, *, force: bool) -> None:
        self.told.append((flow_run_id, state.type, force))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()

    @contextmanager
    def client(*, sync_client: bool) -> Iterator[Server]:
        assert sync_client
        yield found

    monkeypatch.setattr(endings, "get_client", client)
    monkeypatch.setattr(endings, "is_embedded", lambda: False)
    monkeypatch.setattr(endings, "SECONDS_BETWEEN_LOOKS", 0.001)
    monkeypatch.delenv(SUPERVISED, raising=False)
    return found


@pytest.mark.parametrize("state", [StateType.CANCELLING, StateType.CANCELLED])
def test_a_run_that_was_cancelled_stops_between_tasks(server: Server, state: StateType) -> None:
    """A server that is away for a moment, or has no state yet, is asked again."""
    server.states = [None, httpx.ConnectError("away"), StateType.RUNNING, state]
    flow_run = uuid4()
    refuse_if_cancelled()
    with watched(str(flow_run)):
        assert server.has_told_all.wait(10)
        assert endings._cancelled.wait(10)
        with pytest.raises(RunCancelled):
            refuse_if_cancelled()
        assert server.asked == [flow_run] * 4, "and then no more"
    refuse_if_cancelled()
    assert not endings._watched
