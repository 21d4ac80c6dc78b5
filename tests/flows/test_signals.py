"""Commands that are interrupted end with a word and without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.console import _line_by_line
from spineflow.flows.logs import JSON, TEXT, logging_as
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger

BUSY = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from spineflow.flows import cli

def in_a_thread():
    with ThreadPoolExecutor() as pool:
        solved = pool.submit(time.sleep, 1)
        print("begun", flush=True)
        solved.result()

def in_the_main_thread():
    print("begun", flush=True)
    time.sleep(60)

def for_long():
    with ThreadPoolExecutor() as pool:
        solved = pool.submit(time.sleep, 60)
        print("begun", flush=True)
        solved.result()

cli.app.command(globals()[sys.argv[1]], name="busy")
sys.exit(cli.main(["busy"]))
"""
"""A command that is in the middle of a piece of work."""


def busy(place: str) -> subprocess.Popen:
    command = [sys.executable, "-c", BUSY, place]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "number"),
    [("in_a_thread", signal.SIGINT), ("in_the_main_thread", signal.SIGTERM)],
)
def test_a_signal_ends_a_command_with_a_sentence_once_its_work_has_ended(
    place: str, number: signal.Signals
) -> None:
    process = busy(place)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (1, "spineflow: interrupted.\n")


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once() -> None:
    process = busy("for_long")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT


WITH_WORKERS = """
import sys, time
from pathlib import Path
from prefect import flow, task
from spineflow.flows import cli
from spineflow.flows.runners import task_runner
from spineflow.tasks.runs.settings import RunnerSettings

@task
def solve(folder, number):
    Path(folder, str(number)).touch()
    time.sleep(3)

def in_workers():
    @flow(task_runner=task_runner(RunnerSettings(runner=sys.argv[1], workers=2)))
    def solve_all():
        solved = [solve.submit(sys.argv[2], number) for number in range(2)]
        [one.result() for one in solved]
    solve_all()

if __name__ == "__main__":
    cli.app.command(in_workers, name="busy")
    sys.exit(cli.main(["busy"]))
"""
"""A command whose solves are in threads or processes of their own."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "number"),
    [
        pytest.param(runner, number, marks=pytest.mark.soak)
        for runner in ("threads", "processes", "dask")
        for number in (signal.SIGINT, signal.SIGTERM)
    ],
)
def test_workers_of_an_interrupted_command_end_with_it(
    runner: str, number: signal.Signals, real_server, tmp_path: Path
) -> None:
    """Ctrl-C reaches every process of the terminal, SIGTERM the command alone."""
    if runner == "dask":
        pytest.importorskip("prefect_dask", reason="needs prefect-dask: install the extra 'dask'")
    program = tmp_path / "command.py"
    program.write_text(WITH_WORKERS)
    process = subprocess.Popen(
        [sys.executable, str(program), runner, str(tmp_path)],
        env=os.environ | real_server.environment | {"PREFECT_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(600):
        if (tmp_path / "0").exists():
            break
        time.sleep(0.1)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    # What it has begun has its streams, and keeps them open until it has ended.
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, "spineflow: interrupted.\n")


def test_a_run_goes_on_when_nobody_reads_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `spineflow run ... 2>&1 | head -1`: a stage that has ended is not lost for that."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as unread:
        monkeypatch.setattr(sys, "stderr", unread)
        for form in (TEXT, JSON):
            with logging_as(form):
                listener = _line_by_line()
                listener("The input was read", 1, 1)
                listener("The release stands", 1, 1)
        assert main(["resume", str(tmp_path / "none")]) == 2, "the code of a refusal stays"


PATIENCE = 60

COMMAND = """
import os, time
from spineflow.flows.runners import task_runner
from spineflow.tasks.runs.settings import RunnerSettings

runner = task_runner(RunnerSettings(runner="processes", workers=1))
with runner.duplicate() as begun:
    pool = begun._executor
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600)
    time.sleep(600)
"""


def is_running(process: str) -> bool:
    """Whether a process is there and not a zombie that nobody has asked about."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_workers_end_with_a_killed_command() -> None:
    command = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True)
    worker = command.stdout.readline().strip()
    assert is_running(worker)
    command.kill()
    command.wait()
    deadline = time.monotonic() + PATIENCE
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)


WATCH_CONNECTIONS = """
import os, socket, sys

HERE = {None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname()}
NAMED = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}

def note(text):
    with open(os.environ["CONNECTIONS"], "a") as log:
        log.write(text + "\\n")

def watch(event, arguments):
    host = None
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in NAMED:
        host = arguments[0]
    host = host.decode() if isinstance(host, bytes) else host
    if host not in HERE:
        note(f"{event} {host}")
        raise OSError("no connection to elsewhere")

sys.addaudithook(watch)
note("watching")
"""
"""A `sitecustomize` for every Python process of a run, the embedded server's included."""


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    """Environment in which connections to other machines fail and are noted."""
    folder = tmp_path / "watch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WATCH_CONNECTIONS)
    (tmp_path / "connections.txt").touch()
    return {
        "PYTHONPATH": str(folder),
        "CONNECTIONS": str(tmp_path / "connections.txt"),
        "TMPDIR": str(tmp_path / "tmp"),
    }


def noted(folder: Path) -> list[str]:
    return (folder / "connections.txt").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.soak(15)
def test_a_run_is_quiet_and_stays_on_this_machine(
    new_spineflow, watched: dict[str, str], settings_text: str, tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "settings.toml").write_text(settings_text)
    set_caps(open_ledger(tmp_path / "ledger.db"), None, Caps(Fraction(9)))
    run = ["run", "topdown", "settings.toml", "--run-dir", "run"]
    code, output, errors = new_spineflow(*run, folder=tmp_path, **watched).ended()
    assert (code, errors) == (0, "")
    ours = ("Released: ", "Protected is ", "Guarantee: ", "report: ", "certificate: ")
    ours += ("release: ", "accuracy, confidential: ", "in the UI: ", "time: ", "next: ")
    for line in output.splitlines():
        assert line.startswith(ours) or " checks passed; " in line
    for line in ours:
        assert f"\n{line}" in f"\n{output}"
    assert set(noted(tmp_path)) == {"watching"}
    assert len(noted(tmp_path)) > 1, "the embedded server was not watched"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.soak
def test_a_refusal_is_one_line(
    new_spineflow, watched: dict[str, str], settings_text: str, tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "settings.toml").write_text(settings_text.replace("grfc.txt", "nothing.txt"))
    run = ["run", "topdown", "settings.toml", "--run-dir", "run"]
    code, output, errors = new_spineflow(*run, folder=tmp_path, **watched).ended()
    assert (code, output) == (2, "")
    assert errors.startswith("spineflow: nothing.txt: the file does not exist; correct the path")
    assert errors.count("\n") == 1
    assert set(noted(tmp_path)) == {"watching"}
