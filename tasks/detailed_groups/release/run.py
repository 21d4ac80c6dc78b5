"""The release of a run: its names and its files."""

from __future__ import annotations

from spineflow.tasks.detailed_groups.ingest.ingest import run_specification
from spineflow.tasks.detailed_groups.ingest.region_names import read_run_names
from spineflow.tasks.detailed_groups.postprocess.run import groups_to_release
from spineflow.tasks.detailed_groups.release.count_margins import count_noise_of
from spineflow.tasks.detailed_groups.release.files import T1, write_release
from spineflow.tasks.detailed_groups.release.tables import GroupNames
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.runs.directory import RunDirectory


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
