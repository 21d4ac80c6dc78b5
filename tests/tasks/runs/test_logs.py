"""What the logs of runs say of errors of ours, and of others."""

from __future__ import annotations

import logging

import pytest
from spineflow.tasks.runs.errors import InputRefused, StorageFailed
from spineflow.tasks.runs.steps import LOGGERS, ErrorsInSentences, shorten_errors

SENTENCE = "persons.parquet: the column CENRACE is missing; add it."


def record(error: Exception, message: str, *arguments: object, with_traceback: bool = True):
    """A record as Prefect's engines make them, after the filter."""
    try:
        raise error
    except Exception as raised:
        trace = (type(raised), raised, raised.__traceback__) if with_traceback else None
        made = logging.LogRecord("x", logging.ERROR, "f", 1, message, arguments, trace)
    assert ErrorsInSentences().filter(made)
    return made


def test_a_refusal_is_its_sentence() -> None:
    error = InputRefused(SENTENCE)
    for made in (
        record(error, "Encountered exception during execution: %r", error),
        record(error, f"Task run failed with exception: {error!r} - Retries are exhausted"),
    ):
        assert logging.Formatter("%(message)s").format(made) == SENTENCE


def test_a_retry_says_when() -> None:
    error = StorageFailed("s3: the store does not answer.")
    message = "Task run failed with %s: %r - Retry %s/%s will start %s"
    made = record(
        error, message, "exception", error, 1, 6, "2.0 second(s) from now", with_traceback=False
    )
    assert made.getMessage() == (
        "s3: the store does not answer. Retry 1/6 will start 2.0 second(s) from now."
    )


def test_other_errors_stay_as_they_are() -> None:
    error = KeyError("x")
    made = record(error, "Encountered exception during execution: %r", error)
    assert "Traceback" in logging.Formatter("%(message)s").format(made)
    assert made.getMessage() == "Encountered exception during execution: KeyError('x')"


@pytest.mark.parametrize("name", LOGGERS)
def test_every_logger_of_runs_has_the_filter_once(name: str) -> None:
    shorten_errors()
    shorten_errors()
    filters = logging.getLogger(name).filters
    assert sum(isinstance(found, ErrorsInSentences) for found in filters) == 1
