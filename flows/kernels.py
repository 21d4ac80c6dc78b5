"""Compiling the kernels that long runs need, in one step of their own, several at once.

Numba keeps what it has compiled beside the modules, or where NUMBA_CACHE_DIR says, and every later
process loads it from there. The kernels of the estimation take nearly all of the time; they are
compiled here on their smallest example, each group in a process. What else is compiled takes a
second or two, and is compiled when it is first called.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from spineflow.tasks.runs.timing import stopwatch

KERNELS = (
    "admm.approach",
    "admm.first_point",
    "active_set._iterate",
    "interior_point._iterate",
    "network_flow.solve",
)
"""The kernels that take longest, with which all that they call is compiled."""

NEEDED_BY = ("topdown", "estimate", "products", "design", "tune")
"""The flows that estimate by them."""

ANNOUNCEMENT = "Kernels are compiled, once per installation, which takes about a minute"

MOST_PROCESSES = 5


def are_compiled(kernels: Sequence[str] = KERNELS) -> bool:
    """Whether the kernels were compiled before, by what numba has kept."""
    kept = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(kept) if kept else Path(__file__).parents[1] / "tasks"
    found = {path.name.rpartition("-")[0] for path in folder.rglob("*.nbi")}
    return set(kernels) <= found


def compile_kernels(processes: int | None = None) -> None:
    """Compile the kernels of the estimation, or load those that are compiled already.

    By default in as many processes as there are processors, five at most. Raises what a kernel's
    compilation raises.
    """
    from spineflow.tasks.topdown.estimation.example import CALLS

    n = min(processes or os.cpu_count() or 1, MOST_PROCESSES)
    if n == 1:
        for call in CALLS:
            call()
        return
    # A forked child would inherit locks of threads that it does not have.
    with ProcessPoolExecutor(n, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(call) for call in CALLS]):
            done.result()


def announce_and_compile(processes: int | None = None) -> None:
    """Say what is about to take its time, do it, and say how long it took."""
    if not are_compiled():
        print(f"{ANNOUNCEMENT} ...", flush=True)
    with stopwatch() as elapsed:
        compile_kernels(processes)
    print(f"Kernels are compiled: {elapsed():.0f} s.")
