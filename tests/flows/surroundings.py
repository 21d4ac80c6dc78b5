"""What runs of plays have around them that can be taken away: other hosts, a store, mounts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from spineflow.flows.runners import dead_scheduler
from spineflow.tasks.runs.settings import RunnerSettings

from tests.conftest import PrefectServer
from tests.flows.commands import PATIENCE
from tests.flows.held_up import Unplayable, World

if TYPE_CHECKING:
    from moto.server import ThreadedMotoServer


def mount(*arguments: str) -> None:
    """Mount something; raises Unplayable without the right to."""
    done = subprocess.run(["mount", *arguments], capture_output=True)
    if done.returncode:
        raise Unplayable("needs the right to mount a file system")


def made_read_only(root: Path) -> Callable[[], None]:
    """Have a folder be mounted read-only; what ends that."""
    mount("--bind", str(root), str(root))
    mount("-o", "remount,bind,ro", str(root))
    return partial(subprocess.run, ["umount", "--lazy", str(root)], check=True)


class SmallDisk:
    """A file system of a few megabytes in memory."""

    def __init__(self, megabytes: int = 8) -> None:
        self.size = f"size={megabytes}m"

    def mount(self, place: Path) -> None:
        """Have it at a folder; raises Unplayable without the right to."""
        mount("-t", "tmpfs", "-o", self.size, "tmpfs", str(place))
        self.place = place

    @contextmanager
    def filled(self) -> Iterator[Callable[[], None]]:
        """In the block it is full, unless what is yielded was called."""
        ballast = self.place / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                continue
        yield ballast.unlink
        ballast.unlink(missing_ok=True)

    @contextmanager
    def full(self) -> Iterator[Callable[[], None]]:
        """In the block it is full, unless what is yielded was called, and afterwards it is gone."""
        try:
            with self.filled() as make_room:
                yield make_room
        finally:
            subprocess.run(["umount", "--lazy", str(self.place)], check=True)


@contextmanager
def no_more_memory(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """In the block the system ends those of some processes that ask for a megabyte more; raises
    Unplayable without the right to make a control group."""
    groups = Path("/sys/fs/cgroup")
    is_unified = (groups / "cgroup.controllers").exists()
    group = (groups if is_unified else groups / "memory") / "spineflow-play"
    limit = "memory.max" if is_unified else "memory.limit_in_bytes"
    try:
        group.mkdir()
    except OSError:
        raise Unplayable("needs the right to make a control group") from None
    try:
        if not (group / limit).exists():
            raise Unplayable("needs control groups that limit memory")
        (group / limit).write_text(str(1 << 20))
        for process in processes:
            (group / "cgroup.procs").write_text(str(process.pid))
        yield
    finally:
        psutil.wait_procs(processes, timeout=PATIENCE)
        group.rmdir()


STORE = ("127.0.0.1", 8798)
"""Where it serves."""


@contextmanager
def store(*files: Path) -> Iterator[tuple[ThreadedMotoServer, dict[str, str]]]:
    """An S3 server with a bucket of some files, and the environment of its users."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=STORE[1], verbose=False)
    server.start()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{STORE[0]}:{STORE[1]}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="bucket")
    for file in files:
        client.put_object(Bucket="bucket", Key=file.name, Body=file.read_bytes())
    try:
        yield server, environment
    finally:
        server.stop()


@contextmanager
def silent(server: ThreadedMotoServer) -> Iterator[None]:
    """In the block a store says nothing to whoever connects to it."""
    server.stop()
    with socket.create_server(STORE):  # Nobody accepts what connects.
        yield
    server.start()


@contextmanager
def scheduler() -> Iterator[str]:
    """The address of a Dask scheduler with a worker, both of which are killed in the end."""
    address = "tcp://127.0.0.1:8799"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"],
            stderr=subprocess.DEVNULL,
        )
        for kind, options in {
            "scheduler": ("--host", "127.0.0.1", "--port", "8799"),
            "worker": (address, "--nthreads", "1"),
        }.items()
    ]
    settings = RunnerSettings(runner="dask", dask_address=address)
    while dead_scheduler(settings) is not None and processes[0].poll() is None:
        time.sleep(0.5)
    try:
        yield address
    finally:
        for process in processes:
            process.kill()


NETWORK = "10.77.0"
"""Of the hosts of a play: the office, with server and scheduler, is the first; no real one is so
called."""


@contextmanager
def two_hosts(
    world: World,
) -> Iterator[tuple[tuple[str, ...], dict[str, str], tuple[str, str]]]:
    """Two hosts with a Dask worker each, as network namespaces with names of their own; settings
    of a run that they work on, environment of its command, names of the hosts and of their links.
    """
    hosts = ("spine-one", "spine-two")
    address = f"tcp://{NETWORK}.1:8797"
    (world.folder / "office").mkdir(exist_ok=True)
    server = PrefectServer(world.folder / "office", 8796, f"{NETWORK}.1")
    processes: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, **environment: str) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        known = os.environ | environment
        processes.append(subprocess.Popen(command, env=known, cwd=world.folder, **quiet))

    try:
        ip("link", "add", "spine-net", "type", "bridge")
        ip("address", "add", f"{NETWORK}.1/24", "dev", "spine-net")
        ip("link", "set", "spine-net", "up")
        for number, host in enumerate(hosts, start=2):
            ip("netns", "add", host)
            ip("link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", host, "master", "spine-net", "up")
            ip("-n", host, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", host, "link", "set", link, "up")
        server.start()
        dask = [sys.executable, "-m", "distributed.cli.dask_"]
        scheduler, worker = ([*dask[:2], dask[2] + kind] for kind in ("scheduler", "worker"))
        begin(*scheduler, "--host", f"{NETWORK}.1", "--port", "8797", "--no-dashboard")
        for host in hosts:
            named = ("unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh")
            work = (*worker, address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
            begin("ip", "netns", "exec", host, *named, *work, **server.environment)
        wait_for_workers(address, len(hosts))
        yield ("run.runner=dask", f"run.dask_address={address}"), server.environment, hosts
    finally:
        for process in processes:
            process.kill()
            process.wait()
        server.stop()
        # A namespace that is deleted keeps its links for a while, under names that the next play
        # needs.
        links = (("link", "del", name) for name in (*hosts, "spine-net"))
        for rest in (*links, *(("netns", "del", host) for host in hosts)):
            with suppress(Unplayable):
                ip(*rest)


def wait_for_workers(address: str, n_workers: int) -> None:
    from distributed import Client

    with Client(address, timeout=PATIENCE) as client:
        client.wait_for_workers(n_workers, timeout=PATIENCE)


def ip(*arguments: str) -> None:
    """Change the network; raises Unplayable without the right to."""
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    except OSError:
        raise Unplayable("needs ip(8)") from None
    if done.returncode:
        raise Unplayable(f"needs `ip {' '.join(arguments)}` to work: {done.stderr.strip()}")
