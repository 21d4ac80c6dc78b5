"""What is taken from a run in its middle, one thing at a time, and what becomes of the run.

    python -m tests.flows.outages [PLAY ...]

It prints a table of the plays, and on standard error every fault of the program.

Each play begins a small private run as a command, and holds it up as soon as a stage is in its
manifest, mostly the charge. Then something is taken away: the server, the scheduler, a worker, the
memory, the disk, the clock. The run goes on, and should end in one of these:

- went on: it is complete, by itself.
- held: it ended in one sentence with words of what was lost, and `spineflow resume` completes it
  once that is back.

Whatever happens, measurements that were published before are not drawn again, and the ledger holds
one charge. Everything else is a fault of the program.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from spineflow.flows.cli import _quieten
from spineflow.tasks.runs.directory import read_tasks

from tests.flows import surroundings
from tests.flows.commands import Command
from tests.flows.held_up import (
    HELD,
    WENT_ON,
    Fault,
    Ongoing,
    Unplayable,
    World,
    add_estimate,
    outcome,
)


def own_server_killed(world: World) -> str:
    """The server of a command dies under it."""
    run = Ongoing(world, served=False, PREFECT_CLIENT_MAX_RETRIES="1")
    for process in run.children("flows.servers"):
        process.kill()
    return run.ended(held="can be written and has room, then, continue with")


def server_killed_and_back(world: World) -> str:
    """The office's server dies, and is started again after more than a minute."""
    run = Ongoing(world)
    world.server.stop()
    (run.folder / "go").touch()
    time.sleep(80)  # Prefect's client gives up after 62, or a fifth more or less.
    world.server.start()
    return run.ended()


def home_of_prefect_full(world: World) -> str:
    """The disk on which a command's own server has its database becomes full."""
    disk = surroundings.SmallDisk()
    run = Ongoing(world, served=False, at_home=disk.mount, PREFECT_CLIENT_MAX_RETRIES="1")
    with disk.full() as make_room:
        held = f"see that its home {run.home} can be written and has room"
        return run.ended(held=held, back=make_room)


def four_at_once(world: World) -> str:
    """Four runs are begun at once that report to one server with SQLite."""
    folder = world.emptied()
    settings = str(world.files["group-sizes"])
    commands = [
        Command(
            *("run", "group-sizes", settings, "--run-dir", str(folder / str(number))),
            folder=folder,
            **world.server.environment,
        )
        for number in range(4)
    ]
    for command in commands:
        code, told, errors = outcome(command)
        if code or told:
            raise Fault(errors)
    if len(world.draws()) != 4:
        raise Fault(f"not each was charged once: {world.draws()}")
    return WENT_ON


def scheduler_killed(world: World) -> str:
    """A Dask scheduler of another process dies with its worker; another runner goes on."""
    with surroundings.scheduler() as address:
        run = Ongoing(world, "run.runner=dask", f"run.dask_address={address}")
    run.again = ("--set", "run.runner=threads")
    return run.ended(held=f"The Dask scheduler at {address} does not answer")


def on_two_hosts(world: World) -> str:
    """Nothing is taken: a run of Dask on two other hosts, which share its folder."""
    with surroundings.two_hosts(world) as (options, environment, _):
        run = Ongoing(world, *options, **environment)
        outcome = run.ended()
        workers = {task.worker for task in read_tasks(run.run).values()}
        if len(workers) < 2:
            raise Fault(f"there is work of {workers} alone")
        return outcome


def host_lost(world: World) -> str:
    """Of two hosts that run the tasks of Dask, one is cut off from the network."""
    with surroundings.two_hosts(world) as (options, environment, hosts):
        run = Ongoing(world, *options, **environment)
        surroundings.ip("link", "set", hosts[1], "down")
        return run.ended()


def worker_killed(world: World) -> str:
    """The system ends the worker processes, as it does where memory is wanting."""
    run = Ongoing(world, "run.runner=processes", "run.workers=2")
    for process in run.children("spawn_main"):
        process.kill()
    return run.ended(held="memory")


def worker_out_of_memory(world: World) -> str:
    """A control group leaves worker processes no more memory."""
    run = Ongoing(world, "run.runner=processes", "run.workers=2")
    with surroundings.no_more_memory(run.children("spawn_main")):
        return run.ended(held="memory")


def out_of_memory(world: World) -> str:
    """A task asks for more memory than there is."""
    then = (
        "import numpy\n"
        "import spineflow.tasks.group_sizes.steps as steps\n"
        "steps.estimate_run = lambda *_: numpy.ones(1 << 50)"
    )
    return Ongoing(world, then=then).ended(held="Memory ran out in estimate")


def clock_jumps_ahead(world: World) -> str:
    """The clock of the machine is set a day ahead."""
    return Ongoing(world, then=CLOCK.format(seconds=86400)).ended()


def clock_jumps_back(world: World) -> str:
    """The clock of the machine is set a day back."""
    return Ongoing(world, then=CLOCK.format(seconds=-86400)).ended()


CLOCK = "clock = time.time\ntime.time = lambda: clock() + {seconds}"


def run_directory_read_only(world: World) -> str:
    """The file system of the run is mounted read-only, and back."""
    run = Ongoing(world)
    back = surroundings.made_read_only(run.run.root)
    return run.ended(held="Read-only file system", back=back)


def no_file_locks(world: World) -> str:
    """The file system has no locks any more, as one of a network whose lock service is gone."""
    then = (
        "import errno, fcntl, os\n"
        "def no_locks(*_): raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))\n"
        "fcntl.flock = no_locks"
    )
    return Ongoing(world, then=then).ended(held="No locks available")


def odd_names(world: World) -> str:
    """The run's directory has spaces, quotes and other scripts in its name."""
    return Ongoing(world, name="Zählung 人口 'a' \"b\" ½ $HOME").ended()


def behind_a_link(world: World) -> str:
    """The run's directory is a link to a folder elsewhere."""
    place = Path(tempfile.mkdtemp(dir=world.folder))
    link = world.folder / "link"
    link.symlink_to(place)
    return Ongoing(world, name=str(link)).ended()


def store_away_at_publication(world: World) -> str:
    """The store to which a release is copied lets nobody connect for a minute."""
    with surroundings.store() as (server, environment):
        place = "release.publish_to=s3://bucket/out"
        run = Ongoing(world, place, after="report", **environment)
        server.stop()
        (run.folder / "go").touch()
        time.sleep(60)
        server.start()
        return run.ended()


def store_silent(stage: str) -> Callable[[World], str]:
    """A play of a run whose input is in a store, which is silent for a minute after a stage."""

    def play(world: World) -> str:
        files = [world.folder / "groups" / name for name in ("sizes.parquet", "regions.csv")]
        places = [f"input.{file.stem}=s3://bucket/{file.name}" for file in files]
        with surroundings.store(*files) as (server, environment):
            run = Ongoing(world, *places, after=stage, **environment)
            with surroundings.silent(server):
                (run.folder / "go").touch()
                time.sleep(60)
            return run.ended()

    play.__doc__ = f"The store that has the input does not answer for a minute from {stage} on."
    return play


def killed(product: str, stage: str, *options: str) -> Callable[[World], str]:
    """A run is killed after a stage, with all its processes."""

    def play(world: World) -> str:
        run = Ongoing(world, *options, product=product, after=stage)
        run.command.kill()
        run.resumed()
        run.judged()
        return HELD

    words = " with ".join((stage, *options))
    play.__doc__ = f"A run of {product} is killed after its stage {words}."
    return play


def estimate_killed(world: World) -> str:
    """A release from the measurements of another run is killed after its spine."""
    add_estimate(world)
    return killed("estimate", "spine")(world)


PLAYS: dict[str, Callable[[World], str]] = {
    **{
        play.__name__: play
        for play in (
            own_server_killed,
            server_killed_and_back,
            home_of_prefect_full,
            four_at_once,
            scheduler_killed,
            on_two_hosts,
            host_lost,
            worker_killed,
            worker_out_of_memory,
            out_of_memory,
            clock_jumps_ahead,
            clock_jumps_back,
            run_directory_read_only,
            no_file_locks,
            odd_names,
            behind_a_link,
            store_away_at_publication,
            estimate_killed,
        )
    },
    "store_silent_while_reading": store_silent("reading"),
    "store_silent_at_checks": store_silent("tables"),
    "on_demand_killed": killed("topdown", "ledger"),
    "products_killed": killed("products", "ledger"),
    "tune_killed": killed("tune", "trial"),
    "processes_killed": killed("group-sizes", "ledger", "run.runner=processes"),
    "dask_killed": killed("group-sizes", "ledger", "run.runner=dask"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("plays", nargs="*", metavar="PLAY", help=", ".join(PLAYS))
    options = parser.parse_args()
    os.environ["SPINEFLOW_LEDGERS"] = ""  # These are no ledgers of this machine.
    _quieten("CRITICAL")
    lines = ["| play | what is taken | outcome |", "|---|---|---|"]
    n_faults = 0
    with tempfile.TemporaryDirectory(prefix="spineflow-outages-", dir="/dev/shm") as folder:
        world = World(Path(folder))
        for name in options.plays or PLAYS:
            try:
                outcome = PLAYS[name](world)
            except Unplayable as reason:
                outcome = f"not played: {reason}"
            except Exception as error:
                outcome, n_faults = "fault", n_faults + 1
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            about = " ".join((PLAYS[name].__doc__ or "").split())
            lines.append(f"| {name} | {about} | {outcome} |")
            print(lines[-1], flush=True)
        world.server.stop()
    return int(n_faults > 0)


if __name__ == "__main__":
    sys.exit(main())
