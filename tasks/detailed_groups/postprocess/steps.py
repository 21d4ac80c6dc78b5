"""The steps that turn noisy counts of population groups into those that are shown.

Each pass (`us`, `pr`) goes through the stages of `tasks.detailed_groups.postprocess.run.stages_of`,
one task a stage, in that order.
"""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.detailed_groups.ingest.run import run_parameters
from spineflow.tasks.detailed_groups.postprocess.run import pass_files, postprocess
from spineflow.tasks.detailed_groups.postprocess.stages import (
    ALONE,
    COTERMINOUS,
    MARGINALS,
    SUPPRESSED,
)
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


@step("suppression", run_name="suppression-{region_pass}")
def suppress_groups(run_root: str, region_pass: str) -> Artifact:
    """Mark the totals that are too small to be shown."""
    return _stage(run_root, region_pass, SUPPRESSED)


@step("marginals", run_name="marginals-{region_pass}")
def add_marginals(run_root: str, region_pass: str) -> Artifact:
    """Clip counts at zero if asked, and add totals and sex marginals that agree with the cells."""
    return _stage(run_root, region_pass, MARGINALS)


@step("coterminous geographies", run_name="coterminous-{region_pass}")
def unify_coterminous(run_root: str, region_pass: str) -> Artifact:
    """Give regions that cover the same blocks the same counts."""
    return _stage(run_root, region_pass, COTERMINOUS)


@step("alone suppression", run_name="alone-{region_pass}")
def suppress_alone(run_root: str, region_pass: str) -> Artifact:
    """Suppress 'alone' counts above those of 'alone or in any combination'."""
    return _stage(run_root, region_pass, ALONE)


STEPS = {
    SUPPRESSED: suppress_groups,
    MARGINALS: add_marginals,
    COTERMINOUS: unify_coterminous,
    ALONE: suppress_alone,
}
"""The task of every stage."""


def _stage(run_root: str, region_pass: str, stage: str) -> Artifact:
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(DetailedGroupsSettings, run.settings)
    files = pass_files(run, run_parameters(run, settings), region_pass)
    reused = run.release.exists() or files.are_there(stage)
    with stopwatch() as seconds:
        if not reused:
            postprocess(run, settings, region_pass, stage)
    folder = (files.derived / stage).relative_to(run.root)
    return Artifact(str(folder), seconds=seconds(), reused=reused)
