"""What a stage says when some of its tasks fail."""

from __future__ import annotations

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run
from spineflow.flows.progress import end_picture, finish_stage, listening
from spineflow.tasks.runs.errors import SpineflowError


@task
def fails() -> None:
    raise SpineflowError("this one failed")


@task
def follows() -> None:
    pass


@flow
def two_stages() -> None:
    first = fails.submit()
    second = follows.submit(wait_for=[first])
    finish_stage({"second": [second, follows.submit()], "first": [first]})


@pytest.mark.slow
def test_the_error_is_that_of_the_task_that_failed(prefect_server) -> None:
    """The tasks that were waiting for it have no result, and their error says nothing."""
    told = []
    with (
        listening(lambda stage, done, planned: told.append((stage, done, planned))),
        pytest.raises(SpineflowError, match="this one failed"),
    ):
        two_stages()
    assert told[:2] == [("second", 0, 2), ("first", 0, 1)]
    assert told[-1][1] == told[-1][2]


@flow
def told_of_the_rest() -> None:
    finish_stage({"first": [follows.submit()]}, left=lambda: 15.0)
    assert "left of the run" in shown_progress()
    end_picture()
    assert "left of the run" not in shown_progress()
    assert "| first |" in shown_progress()


def shown_progress() -> str:
    """The picture of the flow run that asks; other workers of the session have their own."""
    own = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run.id]))
    with get_client(sync_client=True) as client:
        (found,) = client.read_artifacts(artifact_filter=own)
    return found.data


@pytest.mark.slow
def test_a_run_that_has_ended_has_no_time_left(prefect_server) -> None:
    told_of_the_rest()
