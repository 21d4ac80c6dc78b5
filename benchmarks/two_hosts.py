"""A run on two hosts that loses a worker and then its scheduler, and what becomes of it.

    .venv/bin/python -m benchmarks.nation FOLDER --fraction 1/1600
    .venv/bin/python -m benchmarks.two_hosts FOLDER

The hosts are network namespaces joined by a bridge, which share FOLDER and nothing else of the
network: each runs a Dask worker. The namespace of the command has PostgreSQL, as Prefect's
database, a Prefect server and Dask's scheduler. While estimates are made the worker of one host is
killed, and when tables are begun the scheduler; the run is continued under another one. At the end
everything that follows from measurements is made once more on threads. The command says what
happened, whether the files of both releases are equal, and how often the ledger was charged. Needs
Linux, root, PostgreSQL's programs, and `spineflow[dask]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
COMMAND = "import sys; from spineflow.flows.cli import main; sys.exit(main())"
HERE, HOSTS = "10.77.0.1", {"spineflow1": "10.77.0.2", "spineflow2": "10.77.0.3"}
BRIDGE, SCHEDULER, SERVER, DATABASE = "spineflow0", 8790, 4290, 5490
DERIVED = ("estimates", "solves", "intervals", "pieces", "release", "validation", "report")
NOT_COMPARED = ("certificate", "products")
"""Beginnings of the names of files of a release that bear the time or the place of the run."""


def main() -> None:
    """Run a folder's settings on two hosts; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    for name in ("run", "prefect", "postgres"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in folder.glob("ledger.db*"):
        file.unlink()
    with ExitStack() as stack:
        stack.enter_context(hosts())
        environment = os.environ | {
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://{HERE}:{SERVER}/api",
            "PREFECT_API_DATABASE_CONNECTION_URL": stack.enter_context(database(folder)),
        }
        cluster = Cluster(stack, folder, environment)
        cluster.start_server()
        cluster.start_scheduler()
        for host in HOSTS:
            cluster.start_worker(host)
        failed_over(cluster, folder)
        compared(cluster, folder)


def entered(what: str, outcome: str) -> None:
    """Print a row of the table of what happened."""
    print(f"| {what} | {outcome} |", flush=True)


def failed_over(cluster: Cluster, folder: Path) -> None:
    """Run, kill a worker and then the scheduler, and continue the run."""
    run, of_dask = folder / "run", ["--set", "run.runner=dask", "--set"]
    of_dask.append(f"run.dask_address=tcp://{HERE}:{SCHEDULER}")
    cluster.spineflow("ledger", "init", "--ledger", str(folder / "ledger.db")).wait()
    settings = str(folder / "settings.toml")
    first = cluster.spineflow("run", "topdown", settings, "--run-dir", str(run), *of_dask)
    wait_for(lambda: any(run.glob("estimates/persons/State/*.parquet")), first)
    cluster.kill("worker on spineflow2", "while estimates are made")
    wait_for(lambda: any(run.glob("release-unchecked/**/*")), first)
    cluster.kill("scheduler", "while the release is written")
    entered("run", f"ended with {first.wait()}")
    cluster.start_scheduler()
    for host in HOSTS:
        cluster.start_worker(host)
    print(
        f"| run, continued | ended with {cluster.spineflow('resume', str(run), *of_dask).wait()} |"
    )


def compared(cluster: Cluster, folder: Path) -> None:
    """Make the release again on threads, and compare the two."""
    run, on_two_hosts = folder / "run", folder / "release-of-two-hosts"
    shutil.rmtree(on_two_hosts, ignore_errors=True)
    shutil.copytree(run / "release", on_two_hosts)
    for name in DERIVED:
        shutil.rmtree(run / name, ignore_errors=True)
    again = cluster.spineflow("resume", str(run), "--set", "run.runner=threads")
    entered("run, once more on threads", f"ended with {again.wait()}")
    files = [path for path in sorted(on_two_hosts.rglob("*")) if path.is_file()]
    files = [path for path in files if not path.name.startswith(NOT_COMPARED)]
    others = [run / "release" / path.relative_to(on_two_hosts) for path in files]
    same = sum(a.read_bytes() == b.read_bytes() for a, b in zip(files, others, strict=True))
    entered("files of both releases", f"{same} of {len(files)} have the same bytes")
    ledger = cluster.spineflow(
        "ledger", "--json", "--ledger", str(folder / "ledger.db"), output=subprocess.PIPE
    )
    text, _ = ledger.communicate()
    (dataset,) = json.loads(text)["datasets"].values()
    draws = [draw["name"] for own in dataset["products"].values() for draw in own["draws"]]
    entered("ledger", f"{len(draws)} charges: {', '.join(draws)}")


class Cluster:
    """The processes of all hosts, which end with the stack; their output goes to files."""

    def __init__(self, stack: ExitStack, folder: Path, environment: dict[str, str]) -> None:
        self._stack, self._folder, self._environment = stack, folder, environment
        self._processes: dict[str, subprocess.Popen] = {}

    def start_server(self) -> None:
        """A Prefect server; returns when it answers."""
        arguments = ["prefect", "server", "start", "--host", HERE, "--port", str(SERVER)]
        started = self._start("server", [sys.executable, "-m", *arguments])
        address = f"http://{HERE}:{SERVER}/api/health"

        def answers() -> bool:
            with suppress(OSError), urllib.request.urlopen(address, timeout=5):
                return True
            return False

        wait_for(answers, started)

    def start_scheduler(self) -> None:
        """Dask's scheduler, without a dashboard."""
        arguments = ["--host", HERE, "--port", str(SCHEDULER), "--no-dashboard"]
        self._start(
            "scheduler", [sys.executable, "-m", "distributed.cli.dask_scheduler", *arguments]
        )

    def start_worker(self, host: str) -> None:
        """A worker of one thread on a host, unless it is there."""
        name, address = f"worker on {host}", f"tcp://{HERE}:{SCHEDULER}"
        if name in self._processes and self._processes[name].poll() is None:
            self.kill(name, "to begin anew")
        dask = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
        dask += ["--host", HOSTS[host], "--no-dashboard", "--death-timeout", "60"]
        self._start(name, ["ip", "netns", "exec", host, *dask])

    def spineflow(self, *arguments: str, output: int | None = None) -> subprocess.Popen:
        """The program, on the host of the scheduler."""
        command = [sys.executable, "-c", COMMAND, *arguments]
        return self._start("spineflow", command, output)

    def kill(self, name: str, when: str) -> None:
        """End a process and what it has started at once, as a lost host does."""
        os.killpg(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].wait()
        entered(name, f"killed {when}")

    def _start(self, name: str, command: list[str], output: int | None = None) -> subprocess.Popen:
        log = self._stack.enter_context((self._folder / f"{name}.txt").open("a"))
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=self._environment,
            stdout=log if output is None else output,
            stderr=log,
            start_new_session=True,
        )
        self._processes[name] = process
        self._stack.callback(end, process)
        return process


def end(process: subprocess.Popen) -> None:
    """End a process and what it has started, if they are there."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(happened: Callable[[], bool], process: subprocess.Popen) -> None:
    """Wait until something has happened; a process that has ended before is an error."""
    while not happened():
        if process.poll() is not None:
            raise SystemExit(f"{process.args} ended with {process.returncode}")
        time.sleep(0.05)


@contextmanager
def hosts() -> Iterator[None]:
    """The namespaces of the hosts, and a bridge between them and this one."""
    ip("link", "add", BRIDGE, "type", "bridge")
    try:
        ip("address", "add", f"{HERE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, (host, address) in enumerate(HOSTS.items(), 1):
            outer, inner = f"{BRIDGE}v{number}", f"{BRIDGE}w{number}"
            ip("netns", "add", host)
            ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", host)
            ip("link", "set", outer, "master", BRIDGE, "up")
            ip("-n", host, "address", "add", f"{address}/24", "dev", inner)
            for link in ("lo", inner):
                ip("-n", host, "link", "set", link, "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], stderr=subprocess.DEVNULL)
        ip("link", "delete", BRIDGE)


def ip(*arguments: str) -> None:
    """A command of iproute2."""
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """A PostgreSQL server, run by the user `postgres`; yields Prefect's address of it."""
    place, user = folder / "postgres", ["runuser", "-u", "postgres", "--"]
    place.mkdir()
    shutil.chown(place, "postgres", "postgres")
    options = ["--auth", "trust", "--username", "prefect", "--no-sync"]
    with (folder / "database.txt").open("w") as log:
        initial = [*user, "initdb", "--pgdata", str(place), *options]
        subprocess.run(initial, check=True, stdout=log, stderr=log)
        with (place / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {HERE}/24 trust\n")
        settings = ["-h", HERE, "-p", str(DATABASE), "-k", ""]
        server = subprocess.Popen(
            [*user, "postgres", "-D", str(place), *settings], stdout=log, stderr=log
        )
        try:
            yield f"postgresql+asyncpg://prefect@{HERE}:{DATABASE}/postgres"
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
