"""What a finished run would take on other workers: `spineflow simulate`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from ..tasks.runs.errors import refused
from ..tasks.runs.replay import Replay, Simulated, recorded
from .console import page
from .existing import existing_run

MEGABYTE = 1e6

STAGES_SHOWN = 8


def simulate(options: argparse.Namespace) -> None:
    """Print what the recorded work of a finished run takes on so many workers, a line for each.

    Raises InputRefused for a run whose record lacks work, or that has none.
    """
    run, _, _ = existing_run(options.run_directory)
    with refused(f"{run.root}: "):
        replay = recorded(run, times=options.times, computing=options.computing)
    limit = None if options.storage is None else options.storage * MEGABYTE
    simulated = [replay.on(n, options.cores, limit) for n in options.workers]
    if options.json:
        figures = {"shortest": replay.shortest, "critical": dict(replay.critical)}
        print(json.dumps({"workers": [asdict(one) for one in simulated], **figures}, indent=2))
    else:
        _print(replay, simulated)


def _print(replay: Replay, simulated: Sequence[Simulated]) -> None:
    console = page()
    began = replay.began
    print(
        f"{len(replay.jobs):,} tasks, recorded with {began.workers} workers ({began.runner}) on "
        f"{began.cores} processors, in {replay.wall:,.0f} s"
    )
    table = Table("workers", "processors", "seconds", "speed-up", "busy", "MB/s", "MB/s at most")
    for one in simulated:
        table.add_row(
            f"{one.workers:,}",
            "one each" if one.cores is None else f"{one.cores:,}",
            f"{one.seconds:,.0f}",
            f"{replay.alone / one.seconds:.1f}",
            f"{one.busy:.0%}",
            f"{one.mean_rate / MEGABYTE:,.1f}",
            f"{one.peak_rate / MEGABYTE:,.1f}",
        )
    console.print(table)
    print(f"never less than {replay.shortest:,.0f} s, of which the tasks waited for take:")
    for stage, seconds in replay.critical[:STAGES_SHOWN]:
        print(f"  {stage}: {seconds:,.1f} s")
