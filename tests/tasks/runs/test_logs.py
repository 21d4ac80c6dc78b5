"""What the logs of runs say of errors of ours, and of others."""

from __future__ import annotations

import logging

from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.logs import ErrorsInSentences

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
