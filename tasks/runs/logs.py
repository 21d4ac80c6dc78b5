"""What the logs of flow and task runs say of errors of ours: their sentence, without a traceback.

Prefect logs every exception of a task and of a flow with its traceback, which says nothing to the
person who reads on the run's page that a column is missing.
"""

from __future__ import annotations

import logging

from .errors import SpineflowError

LOGGERS = ("prefect.task_runs", "prefect.flow_runs", "prefect.engine")
"""The loggers with which Prefect reports exceptions of runs."""


class ErrorsInSentences(logging.Filter):
    """Shortens records of public errors to their sentence; lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite a record that reports one of our errors."""
        # With a plain `exc_info=True` logging has put the exception in handling here already.
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        arguments = record.args if isinstance(record.args, tuple) else ()
        quoted = next((one for one in arguments if isinstance(one, SpineflowError)), None)
        public = error if isinstance(error, SpineflowError) else quoted
        if public is None:
            return True
        again = "" if quoted is None or error is not None else _when_again(record)
        record.msg, record.args = f"{str(public).rstrip('.')}.{again}", ()
        record.exc_info = record.exc_text = None
        return True


def shorten_errors() -> None:
    """Have the logs of runs in this process tell errors of ours in a sentence."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(found, ErrorsInSentences) for found in logger.filters):
            logger.addFilter(ErrorsInSentences())


def _when_again(record: logging.LogRecord) -> str:
    """What a record of a failed attempt says of the next, as Prefect words it; else nothing."""
    _, found, rest = record.getMessage().rpartition(" - Retry ")
    return f" Retry {rest}." if found else ""
