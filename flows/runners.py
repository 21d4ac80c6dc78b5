"""Task runners by setting: the same DAG on threads, processes or Dask."""

from __future__ import annotations

from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from tasks.errors import InputRefused
from tasks.settings import RunSettings


def task_runner(settings: RunSettings) -> TaskRunner:
    """The runner that the settings name; raises InputRefused if Dask is not installed."""
    if settings.runner == "threads":
        return ThreadPoolTaskRunner(max_workers=settings.workers)
    if settings.runner == "processes":
        return ProcessPoolTaskRunner(max_workers=settings.workers)
    try:
        from prefect_dask import DaskTaskRunner
    except ImportError:
        raise InputRefused(
            'run.runner = "dask" needs prefect-dask: install spineflow[dask], or choose threads.'
        ) from None
    if settings.dask_address is not None:
        return DaskTaskRunner(address=settings.dask_address)
    return DaskTaskRunner(cluster_kwargs={"n_workers": settings.workers, "threads_per_worker": 1})
