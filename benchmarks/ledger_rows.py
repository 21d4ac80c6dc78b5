"""What the ledger costs each shard, in a ledger with few rows and in one with many.

    .venv/bin/python -m benchmarks.ledger_rows

A shard claims its file, records it, and thereby sets the mark twice: four durable writes. The
median over some shards is given, in wall-clock and in processor time, and beside it the time to
open a ledger and check the whole of it, which a run does once.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from spineflow.tasks.ledger.accounting import Guarantee
from spineflow.tasks.ledger.charges import charge
from spineflow.tasks.ledger.charging import claim, record_publication
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.ledger.store import Ledger, open_ledger, writing
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN

RUN, HERE, DRAW = "run", "here", "persons"
FILES_PER_RUN = 50


def filled(folder: Path, rows: int) -> Ledger:
    """A ledger with a charge to draw under, and rows of other runs: charges and files."""
    ledger = open_ledger(folder / f"{rows}.db")
    draw = UniversePlan(DRAW, DISCRETE_GAUSSIAN, Guarantee("zcdp", Fraction(1, 10)))
    charge(
        ledger,
        dataset="d",
        product="p",
        run_id=RUN,
        draws=[draw],
        inputs={},
        directory=(HERE, None),
    )
    with writing(ledger) as connection:
        connection.executemany(
            "INSERT INTO published VALUES (?, ?, ?, ?, 1)",
            (
                (f"run-{n // FILES_PER_RUN}", f"measurements/{n}.parquet", f"{n:064x}", DRAW)
                for n in range(rows)
            ),
        )
        connection.executemany(
            "INSERT INTO draws SELECT ?, name, dataset, product, mechanism, definition, parameter, "
            "neighbors, delta, bounded_factor, bounded_rho, inputs, charged_at, n_values, "
            "after_results FROM draws WHERE run_id = 'run'",
            ((f"run-{n}",) for n in range(rows // FILES_PER_RUN)),
        )
    return ledger


def publish(ledger: Ledger, name: str) -> None:
    """What a shard asks of the ledger."""
    claimed = claim(ledger, run_id=RUN, identity=HERE, name=name, draw=DRAW)
    record_publication(ledger, replace(claimed, n_drawn=1), name)


def milliseconds(call: Callable[[int], object], repeat: int) -> tuple[float, float]:
    """Median wall-clock and processor time of a call."""
    wall, own = [], []
    for number in range(repeat):
        before = time.perf_counter(), time.process_time()
        call(number)
        wall.append(time.perf_counter() - before[0])
        own.append(time.process_time() - before[1])
    return 1e3 * statistics.median(wall), 1e3 * statistics.median(own)


def main() -> None:
    """Measure and print a line for each size of ledger."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--repeat", type=int, default=50)
    options = parser.parse_args()
    print(
        f"{'rows':>8} {'a shard, ms':>12} {'processor':>10} {'opening, ms':>12} {'processor':>10}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            ledger = filled(Path(folder), rows)
            shard = milliseconds(lambda n, own=ledger: publish(own, f"{n}.parquet"), options.repeat)
            opening = milliseconds(lambda _, own=ledger: open_ledger(own.path), 5)
            print(f"{rows:>8} {shard[0]:>12.1f} {shard[1]:>10.1f}", end=" ")
            print(f"{opening[0]:>12.1f} {opening[1]:>10.1f}")


if __name__ == "__main__":
    main()
