"""Slowly compiled kernels of the estimation, and the state of their compilation.

Numba caches compiled kernels next to the modules, or in NUMBA_CACHE_DIR, and every later process
loads them from there. A process that compiles them holds a lock next to the cache; estimates on the
same machine wait for it rather than compile them again.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import active_set, admm, area_kernels, dual_newton, exchange, network_flow

KERNELS = (
    admm.approach,
    admm.first_point,
    active_set._iterate,
    network_flow.solve,
    area_kernels.add_change,
)
"""The slowest kernels to compile; all that they call is compiled with them."""
SELDOM = (dual_newton._rounds, exchange._exchange)
"""The same for kernels hardly ever needed in runs with few marginal queries."""


def are_compiled(kernels: Sequence[Any] = KERNELS) -> bool:
    """Whether kernels were compiled before, by numba's cache files."""
    folder = _folder()
    return all(any(folder.glob(file_name(kernel))) for kernel in kernels)


def file_name(kernel: Any) -> str:
    """Pattern of the name by which numba keeps the index of a kernel for this Python."""
    code, module = kernel.py_func.__code__, kernel.__module__.rpartition(".")[2]
    version = "py{}{}".format(*sys.version_info)
    return f"{module}.{kernel.__name__}-{code.co_firstlineno}.{version}*.nbi"


def compiling_lock() -> Path:
    """The file that is locked while a process of this machine compiles the kernels."""
    return _folder() / "spineflow-compiling.lock"


def wait_until_compiled() -> None:
    """Wait as long as another process compiles the kernels; return at once where none does."""
    if are_compiled() or not compiling_lock().exists():
        return
    with compiling_lock().open() as opened:
        fcntl.flock(opened, fcntl.LOCK_SH)


def _folder() -> Path:
    """Where numba keeps the kernels of this package."""
    return Path(str(KERNELS[0].stats.cache_path))
