"""The steps that turn noisy counts of population groups into the counts that are shown.

Each pass (`us`, `pr`) goes through the stages of `tasks.detailed_groups.postprocess.run.stages_of`,
one task a stage, in that order.
"""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..ingest.ingest import run_parameters
from ..settings import DetailedGroupsSettings
from .run import pass_files, postprocess
from .stages import ALONE, COTERMINOUS, MARGINALS, SUPPRESSED


@step("suppression", DetailedGroupsSettings, run_name="suppression-{region_pass}")
def suppress_groups(run: RunDirectory, settings: DetailedGroupsSettings, region_pass: str) -> Made:
    """Mark the totals that are too small to be shown."""
    return _stage(run, settings, region_pass, SUPPRESSED)


@step("marginals", DetailedGroupsSettings, run_name="marginals-{region_pass}")
def add_marginals(run: RunDirectory, settings: DetailedGroupsSettings, region_pass: str) -> Made:
    """Clip counts at zero if asked, and add totals and sex marginals that agree with the cells."""
    return _stage(run, settings, region_pass, MARGINALS)


@step("coterminous geographies", DetailedGroupsSettings, run_name="coterminous-{region_pass}")
def unify_coterminous(
    run: RunDirectory, settings: DetailedGroupsSettings, region_pass: str
) -> Made:
    """Give regions that cover the same blocks the same counts."""
    return _stage(run, settings, region_pass, COTERMINOUS)


@step("alone suppression", DetailedGroupsSettings, run_name="alone-{region_pass}")
def suppress_alone(run: RunDirectory, settings: DetailedGroupsSettings, region_pass: str) -> Made:
    """Suppress 'alone' counts above those of 'alone or in any combination'."""
    return _stage(run, settings, region_pass, ALONE)


STEPS = {
    SUPPRESSED: suppress_groups,
    MARGINALS: add_marginals,
    COTERMINOUS: unify_coterminous,
    ALONE: suppress_alone,
}
"""The task of every stage."""


def _stage(
    run: RunDirectory, settings: DetailedGroupsSettings, region_pass: str, stage: str
) -> Made:
    files = pass_files(run, run_parameters(run, settings), region_pass)
    folder = files.derived / stage
    if files.are_there(stage):
        return found(folder)
    postprocess(run, settings, region_pass, stage)
    return made(folder)
