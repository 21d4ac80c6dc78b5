"""Which kernels of the estimation take long to compile, and whether that has been done.

Numba keeps what it has compiled beside the modules, or where NUMBA_CACHE_DIR says, and every later
process loads it from there. A process that compiles them holds a lock beside what is kept; on the
same machine estimates wait for it, rather than compile the same once more.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from . import active_set, admm, area_kernels, dual_newton, exchange, network_flow

KERNELS = (
    admm.approach,
    admm.first_point,
    active_set._iterate,
    dual_newton._rounds,
    network_flow.solve,
    exchange._exchange,
    area_kernels.add_change,
)
"""Those that take longest, with which all that they call is compiled."""


def are_compiled() -> bool:
    """Whether the kernels were compiled before, by what numba has kept."""
    return all(_index_of(kernel).exists() for kernel in KERNELS)


def compiling_lock() -> Path:
    """The file that is locked while a process of this machine compiles the kernels."""
    return _index_of(KERNELS[0]).with_name("spineflow-compiling.lock")


def wait_until_compiled() -> None:
    """Wait as long as another process compiles the kernels; return at once where none does."""
    if are_compiled() or not compiling_lock().exists():
        return
    with compiling_lock().open() as opened:
        fcntl.flock(opened, fcntl.LOCK_SH)


def _index_of(kernel: Any) -> Path:
    """Where numba notes what it keeps of a kernel."""
    return Path(kernel._cache._cache_file._index_path)
