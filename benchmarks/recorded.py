"""Shorten the record of a finished run's work to what tests replay.

    .venv/bin/python -m benchmarks.recorded RUN_DIR FILE.json

writes a row for each task: names, sizes, when it ran and what it took, in seconds from the first.
The predictions of `spineflow.tasks.runs.remaining` are tested on it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.work import Began, read, tasks_of

TIMES = ("begun", "ended", "started")


def main() -> None:
    """Write a record; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN_DIR")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    records = read(RunDirectory(options.run))
    workers = [record.workers for record in records if isinstance(record, Began)][-1]
    tasks = sorted(tasks_of(records).values(), key=lambda task: task.wave)
    first = min(task.begun for task in tasks)
    processes = sorted({task.worker for task in tasks})
    # An end is heard of soon after it; of what ran aside, only at the end of the run.
    rows = [
        [
            *(task.name, task.stage, task.step, task.wave, task.aside, round(task.size, 1)),
            *(round(getattr(task, name) - first, 1) for name in TIMES),
            *(round(task.seconds, 1), round(task.cpu, 2), processes.index(task.worker)),
        ]
        for task in tasks
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    options.file.write_text(f'{{"workers": {workers}, "tasks": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
