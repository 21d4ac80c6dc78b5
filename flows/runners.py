"""Task runners by setting: the same DAG on threads, processes or Dask."""

from __future__ import annotations

from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from tasks.settings.base import RunnerSettings


def task_runner(settings: RunnerSettings) -> TaskRunner:
    """The runner that the settings name; ImportError if Dask is not installed."""
    if settings.runner == "threads":
        return ThreadPoolTaskRunner(max_workers=settings.workers)
    if settings.runner == "processes":
        return ProcessPoolTaskRunner(max_workers=settings.workers)
    from prefect_dask import DaskTaskRunner  # An extra; settings that need it are checked first.

    if settings.dask_address is not None:
        return DaskTaskRunner(address=settings.dask_address)
    return DaskTaskRunner(cluster_kwargs={"n_workers": settings.workers, "threads_per_worker": 1})
