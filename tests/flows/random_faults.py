"""Random faults, one after the other, in runs of every product on every runner.

    python -m tests.flows.random_faults [--minutes N] [--strikes N] [--seed TEXT] [PRODUCT ...]

It prints what became of the runs as three tables: by product, by runner and server, by fault. Every
run is told on standard error, faults of the program with the schedule that led there. In little
time it plays less of the same: all products before one again, on all runners before one again.

A schedule is one small private run, as a command. As soon as it has written a random number of
files, a random fault is done to it: it is killed, its server is taken away, its disk becomes full.
Where that ends the command, the run is continued by `spineflow resume`, and struck again; after
some strikes it is left to itself. A strike should end in one of these:

- went on: the command was not ended by it.
- held: the command ended, without a word where it was killed and else in one sentence, and the run
  could be continued once what was taken is back.
- mended: a file was deleted or altered between two commands, and was made again.

Whatever happens, in the end the run is complete, its files are those of its manifest, measurements
that were published are as they were, and the ledger holds one charge. All else is a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from spineflow.flows.cli import _quieten
from spineflow.tasks.products.registry import OF_ONE_INPUT

from tests.flows.commands import PATIENCE
from tests.flows.exposed import Run, surrounded
from tests.flows.faults import DAMAGES, do_damage, files_of, wrong_with
from tests.flows.held_up import HELD, WENT_ON, Fault, Unplayable, World, add_estimate, outcome

MENDED, FAULT = "mended", "fault"
PRODUCTS = (*OF_ONE_INPUT, "products", "tune", "design")
RUNNERS = ("threads", "processes", "dask")
SERVERS = ("own", "office")
"""One that the command starts and that ends with it, or one that serves all runs."""

Kind = tuple[str, str, str]
"""A product, its runner and its server."""

COLUMNS = ("product", "runner", "server", "fault", "how")
"""Of the tables."""

SECONDS_AWAY = 3.0


def strike_killed(run: Run) -> None:
    """The command is killed, with all its processes."""
    run.command.kill()


def strike_killed_alone(run: Run) -> None:
    """The command is killed; its workers and its server find that out."""
    os.kill(run.command.process.pid, signal.SIGKILL)


def strike_interrupted(run: Run) -> None:
    """Ctrl-C."""
    os.kill(run.command.process.pid, signal.SIGINT)


def strike_terminated(run: Run) -> None:
    """SIGTERM, as when the machine is shut down."""
    os.kill(run.command.process.pid, signal.SIGTERM)


def strike_stopped(run: Run) -> None:
    """All processes stand still, as where the machine sleeps, and go on."""
    for number in (signal.SIGSTOP, signal.SIGCONT):
        os.killpg(run.command.process.pid, number)
        time.sleep(SECONDS_AWAY)


def strike_worker_killed(run: Run) -> None:
    """A worker process is killed, as where memory is wanting."""
    workers = run.workers()
    if not workers:
        raise Unplayable("no worker process is there")
    workers[0].kill()


def strike_server_killed(run: Run) -> None:
    """The server is killed; that of the office is started again after some seconds."""
    if run.is_own:
        for process in run.children("own_server"):
            process.kill()
        return
    run.world.server.stop()
    time.sleep(SECONDS_AWAY)
    run.world.server.start()


def strike_ledger_held(run: Run) -> None:
    """Another program holds the ledger for some seconds."""
    ledger = run.world.folder / "world" / "ledger.db"
    if not ledger.exists():
        raise Unplayable("there is no ledger yet")
    with contextlib.closing(sqlite3.connect(ledger, isolation_level=None, timeout=60)) as held:
        held.execute("BEGIN EXCLUSIVE")
        time.sleep(SECONDS_AWAY)
        held.execute("ROLLBACK")


def strike_disk_full(run: Run) -> None:
    """The disk of the run's directory is full, until the command has ended."""
    if not os.path.ismount(run.run.root):
        raise Unplayable("needs the right to mount a file system")
    with run.disk.filled(), contextlib.suppress(Exception):
        run.command._wait(PATIENCE)


STRIKES: dict[str, Callable[[Run], None]] = {
    name.removeprefix("strike_"): strike
    for name, strike in list(globals().items())
    if name.startswith("strike_")
}
GOES_ON = ("stopped", "ledger_held")
"""What must not end a command."""
WORDLESS = ("killed", "killed_alone")
DAMAGED = "file_damaged"


def struck(run: Run, name: str, chance: random.Random, length: int) -> str:
    """Do a fault to the command once it has written a random number of files, and judge."""
    is_lost = name == "server_killed" and run.is_own
    own_server = {"PREFECT_CLIENT_MAX_RETRIES": "1"} if is_lost else {}
    present = len(files_of(run.run.root))
    wanted = present + chance.randint(1, max(1, length - present))
    run.begin(**own_server)
    deadline = time.monotonic() + PATIENCE
    while run.command.exit_code() is None and len(files_of(run.run.root)) < wanted:
        if time.monotonic() > deadline:
            raise Fault("it does not end")
        time.sleep(0.02)
    if run.command.exit_code() is not None:
        code, told, errors = outcome(run.command)
        raise Fault(f"exit code {code}: {errors}") if code or told else Unplayable("it has ended")
    STRIKES[name](run)
    while is_lost and run.command.exit_code() is None and time.monotonic() < deadline:
        if "\nspineflow: " in f"\n{run.command._said()}":
            # Prefect goes on trying to send its queue of events for minutes, while the run is free.
            run.command.kill()
            _, told, errors = outcome(run.command)
            return HELD if len(told) == 1 else f"{FAULT}: {errors}"
        time.sleep(0.1)
    code, told, errors = outcome(run.command)
    if code == 0 and not told:
        return WENT_ON
    if name in WORDLESS and code == -signal.SIGKILL:
        return HELD
    if name in GOES_ON or len(told) != 1 or not told[0].startswith("spineflow: "):
        raise Fault(f"exit code {code}: {errors}")
    return HELD


def handed_on(run: Run) -> list[str]:
    """The files that the manifest has of the stages that have ended."""
    stages = run.run.read_manifest()["stages"].values() if run.run.manifest.exists() else ()
    names = sorted(name for stage in stages for name in stage.get("digests", ()))
    return [name for name in names if (run.run.root / name).is_file()]


def playable(run: Run) -> list[str]:
    """What can be done to a run now; damage as often as all else, once there is what to damage."""
    names = [name for name in STRIKES if run.runner != "threads" or name != "worker_killed"]
    return [*names, *[DAMAGED] * (len(names) if handed_on(run) else 0)]


def damaged(run: Run, chance: random.Random) -> str:
    """Delete or alter a file that the manifest has, and put it back where that is asked for."""
    name = chance.choice(handed_on(run))
    file, content = run.run.root / name, (run.run.root / name).read_bytes()
    do_damage(file, chance.choice(DAMAGES))
    run.begin()
    code, _, errors = outcome(run.command)
    if code == 0:
        return MENDED
    wrong = wrong_with(errors, name)
    if wrong:
        raise Fault(f"{name} was damaged: {wrong}")
    file.write_bytes(content)
    return HELD


def schedule(run: Run, chance: random.Random, n_strikes: int, length: int) -> Iterator[tuple]:
    """Faults and their outcomes, of which the last may be one of the program, which ends it."""
    said: list[str] = []
    for number in range(n_strikes + 1):
        is_done = run.run.manifest.exists() and run.run.read_manifest()["status"] == "complete"
        is_last = is_done or number == n_strikes
        name = "left to itself" if is_last else chance.choice(playable(run))
        try:
            if is_last:
                run.ended()
                print(f"{run}: {', '.join(said)}", file=sys.stderr, flush=True)
                return
            how = damaged(run, chance) if name == DAMAGED else struck(run, name, chance, length)
            if how.startswith(FAULT):
                raise Fault(how)
            run.judged()
        except Unplayable:
            if run.command is not None:
                run.command.kill()
            continue
        except Exception as error:
            how = FAULT
            print(f"{run} after {said}: {name}: {error!r}", file=sys.stderr, flush=True)
        said.append(f"{name} {how}")
        yield name, how
        if how == FAULT:
            return


def length_of(world: World, product: str) -> int:
    """How many files a run of a product has that nothing happens to."""
    if product == "estimate":
        add_estimate(world)
    with surrounded(world, product, "threads", "office") as run:
        run.ended()
        return len(files_of(run.run.root))


def in_turn(products: Sequence[str]) -> Iterator[Kind]:
    """Every product on every runner and server, each as late as can be after the one like it."""
    kinds = [(RUNNERS[n % 4], SERVERS[(n + n // 4) % 2]) for n in range(8)]
    for turn, (place, product) in itertools.product(range(8), enumerate(products)):
        yield product, *kinds[(turn + place) % 8]


def played(
    world: World, products: Sequence[str], minutes: float, n_strikes: int, seed: str
) -> Iterator[tuple[Kind, str, str]]:
    """Schedules of all kinds, or of those begun in some minutes: kind, fault, what became of it."""
    length = cache(partial(length_of, world))
    end = time.monotonic() + 60 * minutes
    for kind in itertools.takewhile(lambda _: time.monotonic() < end, in_turn(products)):
        chance = random.Random(f"{seed} {' '.join(kind)}")
        n_files = length(kind[0])  # Made before the run is, with whose ledger it would interfere.
        with surrounded(world, *kind) as run:
            for name, how in schedule(run, chance, n_strikes, n_files):
                yield kind, name, how


def table(columns: Sequence[str], played: Sequence[Mapping[str, str]]) -> str:
    """How often each outcome came by some columns, as Markdown."""
    counts = Counter((tuple(one[name] for name in columns), one["how"]) for one in played)
    outcomes = (WENT_ON, HELD, MENDED, FAULT)
    lines = [f"| {' | '.join([*columns, 'tried', *outcomes])} |"]
    lines.append("|---" * (len(columns) + 5) + "|")
    for key in sorted({key for key, _ in counts}):
        own = [counts[key, how] for how in outcomes]
        lines.append(f"| {' | '.join(map(str, [*key, sum(own), *own]))} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("products", nargs="*", metavar="PRODUCT", help=", ".join(PRODUCTS))
    parser.add_argument("--minutes", type=float, default=math.inf, help="no run begins later")
    parser.add_argument("--strikes", type=int, default=3, help="faults in a run, at most")
    parser.add_argument("--seed", default="0", help="of what is done, and when")
    asked = parser.parse_args()
    os.environ["SPINEFLOW_LEDGERS"] = ""  # These are no ledgers of this machine.
    _quieten("CRITICAL")
    told = []
    products = asked.products or PRODUCTS
    with tempfile.TemporaryDirectory(prefix="spineflow-faults-", dir="/dev/shm") as folder:
        world = World(Path(folder))
        happened = played(world, products, asked.minutes, asked.strikes, asked.seed)
        with contextlib.suppress(KeyboardInterrupt):  # It tells then what was played.
            for kind, fault, how in happened:
                told.append(dict(zip(COLUMNS, (*kind, fault, how), strict=True)))
        world.server.stop()
    for columns in (["product"], ["runner", "server"], ["fault"]):
        print(table(columns, told), end="\n\n")
    return int(any(one["how"] == FAULT for one in told))


if __name__ == "__main__":
    sys.exit(main())
