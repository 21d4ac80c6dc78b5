"""A generated county with detailed groups, and finished runs of these, for tests of households."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from spineflow.flows.cli import main
from spineflow.tasks.detailed_groups.ingest.generate import (
    generate_specification,
    give_detailed_codes,
)
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from tests.flows.in_process import stages_in_process

TABLES = (
    '[input]\nparameters = "params"\npersons = "persons.parquet"\nunits = "units.parquet"\n'
    'geography = "grfc.txt"\n'
)


def write_households(folder: Path, *, persons: int = FEWEST_PERSONS) -> None:
    """Census tables whose households fit together, with the codes of a small specification."""
    with tempfile.TemporaryDirectory() as raw:
        generate_county(raw, persons=persons, seed=1, state="44")
        synthesize_households(raw, folder, seed=1)
    generate_specification(
        folder / "params", regional=2, detailed=3, ethnicities=1, households=True
    )
    codes = list(read_specification(str(folder / "params")).names)
    give_detailed_codes(folder / "persons.parquet", codes)


def run_in_process(*command: str) -> None:
    """A command whose stages run in this process, and which says nothing."""
    with (
        stages_in_process(judged_twice=False),
        contextlib.redirect_stdout(None),
        contextlib.redirect_stderr(None),
    ):
        assert main(list(command)) == 0


@cache
def _with_groups() -> Path:
    """The tables, and a finished run of their detailed groups under a ledger of its own."""
    folder = Path(tempfile.mkdtemp(prefix="spineflow-groups-"))
    atexit.register(_removed, folder, os.getpid())
    write_households(folder)
    file = folder / "groups.toml"
    file.write_text(f'{TABLES}[privacy]\ndataset = "people"\nledger = "earlier.db"\n')
    run_in_process("run", "detailed-groups", str(file), "--run-dir", str(folder / "groups"))
    return folder


def _removed(folder: Path, process: int) -> None:
    """Remove a folder at the end of the process that made it, and not of one that it has forked."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def write_detailed_households(folder: Path) -> Path:
    """The settings of a private run of households, beside its input and the finished run."""
    shutil.copytree(_with_groups(), folder, dirs_exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(f'{TABLES}groups = "groups"\n[privacy]\ndataset = "people"\n')
    return file
