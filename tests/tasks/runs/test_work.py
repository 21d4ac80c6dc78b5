"""The record of a run's work: what is written of a task, and what is kept from it."""

from __future__ import annotations

import logging
from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.steps import shorten_error
from spineflow.tasks.runs.work import Task, append, read_tasks


def task(name: str = "measure persons Block 00000", **other: object) -> Task:
    fields = {
        "name": name,
        "stage": "persons measure Block",
        "step": "measure",
        "wave": 3,
        "aside": False,
        "after": ("charge ledger",),
        "begun": 1.0,
        "ended": 4.0,
        "started": 1.5,
        "seconds": 2.0,
        "cpu": 1.0,
        "worker": "host:1",
        "reused": False,
        "path": "",
    }
    return Task(**{**fields, **other})


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert read_tasks(run) == {}
    append(run, task())
    append(run, task("other"))
    assert [*read_tasks(run).values()] == [task(), task("other")]


def test_the_log_has_no_traceback_of_the_programs_own_errors() -> None:
    for error, has_traceback in ((InputRefused("add the column."), False), (ValueError("x"), True)):
        try:
            raise error
        except Exception as raised:
            trace = (type(raised), raised, raised.__traceback__)
            made = logging.LogRecord("x", logging.ERROR, "f", 1, "%r", (error,), trace)
        assert shorten_error(made)
        assert ("Traceback" in logging.Formatter("%(message)s").format(made)) == has_traceback
