"""Compilation of the kernels of long runs, in one step of their own or concurrently with a run.

The kernels of the estimation take nearly all of the time; they are compiled here on their smallest
example, each group in a process. Other kernels take a second or two, and are compiled at their
first call.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context

from ..tasks.runs.handles import stopwatch

NEEDED_BY = ("topdown", "estimate", "products", "tune", "evidence")
"""The flows that estimate by them."""

ANNOUNCEMENT = "Kernels are compiled, once per installation, which takes about a minute"

MOST_PROCESSES = 5

COMMAND = "from spineflow.flows.kernels import compile_kernels; compile_kernels(seldom={})"


def compile_kernels(processes: int | None = None, *, seldom: bool = True) -> None:
    """Compile the kernels of the estimation, or load compiled ones.

    By default in as many processes as there are processors, five at most, and with the kernels
    that runs use only `seldom`. Raises errors of compilation.
    """
    from ..tasks.topdown.estimation.kernels import CALLS, SELDOM  # 0.9 s, numba's

    calls = [call for call in CALLS if seldom or call not in SELDOM]
    n = min(processes or os.cpu_count() or 1, MOST_PROCESSES)
    if n == 1:
        for call in calls:
            call()
        return
    # A forked child would inherit locks of threads that it does not have.
    with ProcessPoolExecutor(n, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(call) for call in calls]):
            done.result()


def compile_in_background(product: str, *, seldom: bool = False) -> bool:
    """Compile the kernels that a product needs in a separate process while its input is read.

    Kernels that runs use only `seldom` are compiled at their first use, unless requested.
    Estimates wait for that process; see `estimation.kernels`. Returns whether it was started: not
    if they were compiled before or are being compiled, or if no process can be started, so that
    they are compiled on the way. A killed run leaves it to finish, for the run that continues.
    """
    if product not in NEEDED_BY:
        return False
    from ..tasks.topdown.estimation.kernels import are_compiled, compiling_lock  # 0.9 s

    if are_compiled():
        return False
    # Processes that inherited the lock keep it until the last of them ends.
    with suppress(OSError), compiling_lock().open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND.format(seldom)],
            pass_fds=[lock.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return True
    return False


def load_kernels(product: str) -> None:
    """Load the kernels that all runs of a product need, if they were compiled before."""
    if product in NEEDED_BY:
        from ..tasks.topdown.estimation.kernels import are_compiled  # 0.9 s, numba's

        if are_compiled():
            compile_kernels(1, seldom=False)


def announce_and_compile(*, processes: int | None = None) -> None:
    """Compile the kernels of long runs, once per installation.

    Otherwise the first of these runs does.

    Args:
        processes: number of processes at once (default: as many as there are processors)
    """
    from ..tasks.topdown.estimation.kernels import are_compiled  # 0.9 s

    if not are_compiled(seldom=True):
        print(f"{ANNOUNCEMENT} ...", flush=True)
    with stopwatch() as elapsed:
        compile_kernels(processes)
    print(f"Kernels are compiled: {elapsed():.0f} s.")
