"""Messages for runs that end for reasons outside their tasks: a server, a worker, the disk.

Tasks confine their own errors. Errors of the surrounding orchestration become one public
sentence here, since they would otherwise end in a traceback that helps no user, or, in a
deployment, reach the server.
"""

from __future__ import annotations

import httpx
from prefect.settings import PREFECT_HOME

from ..tasks.runs.errors import SpineflowError, keep_traceback, more_memory, storage_failed
from ..tasks.runs.settings import RunnerSettings
from .runners import dead_scheduler
from .servers import is_embedded, too_busy

_UNREACHABLE = ("Failed to reach API", "Timed out while attempting to connect")
"""Beginnings of Prefect's errors for a server that does not answer."""

_OF_THE_SERVER = (httpx.HTTPError, ConnectionError, TimeoutError)
"""Errors of requests to the server: outside tasks, all network requests go to it."""


_LOST_WORKERS = ("BrokenProcessPool", "KilledWorker")
"""Errors of the pool of processes, and of Dask, for a worker that died during a task."""


class Interrupted(SpineflowError):
    """The run was cut short from outside; finished stages stay, and it can be continued."""


def explain_error(error: Exception, run_root: str, runner: RunnerSettings) -> SpineflowError:
    """The program's own error for any error that ended a run; its own errors are unchanged.

    The text and traceback of others are written to the run's confidential folder. `runner` is the
    task runner: if it is a Dask scheduler that is gone, every error is reported as that.
    """
    if isinstance(error, SpineflowError):
        return error
    address = dead_scheduler(runner)
    if address is not None:
        keep_traceback(error, run_root)
        what = f"The Dask scheduler at {address} does not answer; when it does"
    elif isinstance(error, _OF_THE_SERVER) or str(error).startswith(_UNREACHABLE):
        keep_traceback(error, run_root)
        what = "The Prefect server (PREFECT_API_URL) does not answer; when it does"
        if is_embedded():
            home = f"its home {PREFECT_HOME.value()} can be written and has room, then"
            what = f"Prefect's embedded server does not answer; see that {home}"
        if busy := too_busy(error):
            what = f"{busy}; then"
    elif isinstance(error, OSError):
        return storage_failed(error, run_root)
    elif type(error).__name__ in _LOST_WORKERS:
        keep_traceback(error, run_root)
        under_way = ", ".join(getattr(error, "__notes__", ())) or "a task"
        return Interrupted(
            f"A worker process was ended in the middle of {under_way}, most likely for want "
            f"of memory; {more_memory(run_root)}."
        )
    else:
        kept = keep_traceback(error, run_root)
        detail = f" (the detail is in {kept})" if kept else ""
        what = f"The run was interrupted by {type(error).__name__}{detail}; when that is put right"
    return Interrupted(f"{what}, continue with 'spineflow resume {run_root}'.")
