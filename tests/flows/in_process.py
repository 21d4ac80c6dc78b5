"""Commands without a Prefect server: the same steps in the same order, called as functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows import running, servers


def start_no_server(patched: pytest.MonkeyPatch) -> None:
    """Have commands that are called as functions use the server that is set, or none."""
    patched.setattr(servers, "server_for_runs", lambda: nullcontext(servers.Server("")))


@contextmanager
def stages_in_process() -> Iterator[None]:
    """Have commands run the stages of a product in this process, without a flow run.

    The server of the session, if other tests have set one, is not theirs.
    """
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.MonkeyPatch.context() as patched,
    ):
        start_no_server(patched)
        patched.setattr(running, "run_stages", running.run_stages_here)
        yield
