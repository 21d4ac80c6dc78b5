"""The Prefect server that a command's runs report to: one that is set, one found here, or its own.

Without a server, Prefect starts one inside the command, which takes seconds and ends with it. Where
`prefect server start` runs on this machine, the command reports to that one instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import prefect
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_API_HOST,
    PREFECT_SERVER_API_PORT,
    temporary_settings,
)
from prefect.utilities.urls import url_for

LOOKS_FOR_SERVER = "SPINEFLOW_FIND_SERVER"
"""Variable of the environment that keeps commands from looking for a server, set to `false`."""

SECONDS_TO_ANSWER = 2.0
"""A server on this machine that takes longer is not used."""


@contextmanager
def found_server() -> Iterator[None]:
    """In the block, runs report to the server of this machine if none is set and one answers."""
    address = None if PREFECT_API_URL.value() is not None else local_server()
    if address is None:
        yield
        return
    with temporary_settings({PREFECT_API_URL: address}):
        yield


def local_server() -> str | None:
    """Address of the API of a server of this version of Prefect that runs here; None if none does.

    It is looked for where `prefect server start` would put it (PREFECT_SERVER_API_HOST and _PORT).
    """
    if os.environ.get(LOOKS_FOR_SERVER, "").lower() in ("0", "false", "no"):
        return None
    host = PREFECT_SERVER_API_HOST.value()
    here = "127.0.0.1" if host in ("0.0.0.0", "localhost") else host
    address = f"http://{here}:{PREFECT_SERVER_API_PORT.value()}/api"
    try:
        with httpx.Client(trust_env=False, timeout=SECONDS_TO_ANSWER) as client:
            version = client.get(f"{address}/admin/version").raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
    return address if version == prefect.__version__ else None


def address_of(flow_run_id: str) -> str:
    """Where the UI shows a flow run.

    The embedded server keeps its runs where `prefect server start` shows them later.
    """
    there = f"http://{PREFECT_SERVER_API_HOST.value()}:{PREFECT_SERVER_API_PORT.value()}"
    return str(url_for("flow-run", obj_id=flow_run_id, default_base_url=there))


def is_embedded() -> bool:
    """Whether runs report to a server inside this process, which nobody can watch."""
    return PREFECT_API_URL.value() is None
