"""The record of a run's work: what is written of a task, and what is kept from it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory, Task, read_tasks, record_task
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.steps import shorten_error


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    run, step = RunDirectory(tmp_path), ("persons measure Block", "measure")
    assert read_tasks(run) == {}
    made = Artifact("a.parquet", seconds=2.0, started=1.5, cpu=1.0, worker="host:1")
    record_task(run, *step, ("persons", "Block", 0), made, ["ledger: charge ledger"])
    record_task(run, *step, ("persons", "Block", 0), replace(made, reused=True))
    record_task(run, *step, ("persons", "Block", 1), Artifact("b.parquet", reused=True))
    with (tmp_path / "work.jsonl").open("a") as stream:
        stream.write('{"name": "without a time", "stage": "measure"}\n[1]\n5\n{"name"')
    first, second = read_tasks(run).values()
    names = [f"measure persons Block {number}" for number in range(2)]
    assert [first.name, second.name] == names and second.ended == second.started > 1.5
    own = (*step, 1.5, 2.0, 1.0, "host:1", False, "a.parquet")
    assert first == Task(names[0], *own[:2], first.ended, *own[2:], ["ledger: charge ledger"])
    assert first.kind == second.kind == "persons measure Block: measure"


def test_the_log_has_no_traceback_of_the_programs_own_errors() -> None:
    for error, has_traceback in ((InputRefused("add the column."), False), (ValueError("x"), True)):
        try:
            raise error
        except Exception as raised:
            trace = (type(raised), raised, raised.__traceback__)
            made = logging.LogRecord("x", logging.ERROR, "f", 1, "%r", (error,), trace)
        assert shorten_error(made)
        assert ("Traceback" in logging.Formatter("%(message)s").format(made)) == has_traceback
