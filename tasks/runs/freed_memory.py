"""What a process keeps of the memory that its arrays have freed, where the C library is glibc.

Left alone, glibc gives large arrays back at once, and the system clears every page of the next one
before it hands them out: a tenth of the time of measuring. What lies between arrays that live
on it never gives back: after a few tasks, a hundred MiB and more of each worker. Other C libraries
are left alone.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

KEPT_BYTES = 1 << 26
"""What a process keeps of freed memory at the end of its heap."""
KEPT_AFTER_A_TASK = 1 << 24
"""By how much a process may grow from task to task until it gives back what it has freed."""
LARGEST_KEPT_ARRAY = 1 << 25
"""Larger arrays are given back, however much is kept: two workers would keep a hundred MiB more."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""What glibc's <malloc.h> calls these two."""

RESIDENT = Path("/proc/self/statm")
"""Of this process, in pages: all memory, what of it is there, …; on Linux."""

_resident: int | None = None
"""Bytes of this process that were there when freed memory was last given back."""


def keep_freed_memory() -> None:
    """Have this process keep the memory that arrays free for the arrays that follow."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_ARRAY)


def give_back_freed_memory() -> None:
    """Give back what is freed, if this process has grown by more than is kept since it last did.

    Where that is not enough, what only refers to itself is freed as well.
    """
    global _resident
    with suppress(OSError, AttributeError):
        trim = ctypes.CDLL(None).malloc_trim
        most = 0 if _resident is None else _resident + KEPT_AFTER_A_TASK
        if _resident_bytes() > most:
            trim(ctypes.c_size_t(0))
            if _resident_bytes() > most:
                gc.collect()
                trim(ctypes.c_size_t(0))
            _resident = _resident_bytes()


def _resident_bytes() -> int:
    return int(RESIDENT.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
