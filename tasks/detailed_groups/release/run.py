"""The release of a run: its names and its files."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ..ingest.ingest import run_specification
from ..ingest.region_names import read_run_names
from ..postprocess.run import groups_to_release
from ..settings import DetailedGroupsSettings
from .count_margins import count_noise_of
from .files import T1, write_release
from .tables import GroupNames


def names_of(run: RunDirectory) -> GroupNames:
    """Names of the iterations, and of the regions that the input names."""
    iterations = run_specification(run).iterations
    return GroupNames(
        iteration_name={code: item.name for code, item in iterations.items()},
        iteration_level={code: item.level for code, item in iterations.items()},
        region_name=read_run_names(run),
    )


def write_run_release(run: RunDirectory, settings: DetailedGroupsSettings) -> None:
    """Write the release's files where they are checked before they are released."""
    write_release(
        run.unchecked_release,
        groups_to_release(run, settings),
        names_of(run),
        count_noise_of(run, settings),
        is_private=settings.is_private,
    )


def has_unchecked_release(run: RunDirectory) -> bool:
    """Whether the files have been written, and not been released yet."""
    return (run.unchecked_release / T1).exists()
