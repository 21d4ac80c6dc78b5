"""Time and memory of a run of a generated nation, stage by stage.

    .venv/bin/python -m benchmarks.nation FOLDER --fraction 1/50
    .venv/bin/python -m benchmarks.nation_run FOLDER

runs the settings that `nation.py` wrote, from end to end, under a ledger and a Prefect home of its
own in FOLDER. Twice a second the processes of the run are looked at: their resident memory,
that of anonymous pages (what mapped files take can be dropped), and their processor time. Pages
that several processes share, as workers do that were forked of one, count once. Stages
that run side by side end together in the manifest, and share a line: the time since the stages
before, the seconds of their tasks, and the peak over all processes meanwhile. Needs Linux.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
COMMAND = "import sys; from spineflow.flows.cli import main; sys.exit(main())"
PAUSE = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """The processes of a run at a time: MiB of all together, processor seconds of all so far."""

    seconds: float
    resident: float
    anonymous: float
    cpu: float


def main() -> None:
    """Run a nation and print its stages; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    run_and_tell("topdown", parser.parse_args().folder.resolve())


def run_and_tell(flow: str, folder: Path, *of_ledger: str) -> None:
    """Run a folder's settings anew, under a ledger with these options, and print the stages."""
    for name in ("run", "prefect"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in folder.glob("ledger.db*"):
        file.unlink()
    spineflow = [sys.executable, "-c", COMMAND]
    ledger = [*spineflow, "ledger", "init", "--ledger", str(folder / "ledger.db")]
    subprocess.run([*ledger, *of_ledger], check=True, cwd=REPOSITORY)
    settings, run = str(folder / "settings.toml"), folder / "run"
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [*spineflow, "run", flow, settings, "--run-dir", str(run)],
            cwd=REPOSITORY,
            env=os.environ | {"PREFECT_HOME": str(folder / "prefect")},
            stdout=output,
            stderr=output,
        )
        samples, ended = watch(process, run)
    if process.returncode:
        raise SystemExit((folder / "output.txt").read_text())
    print_stages(samples, ended)


def watch(
    process: subprocess.Popen, run: Path
) -> tuple[list[Sample], dict[str, tuple[float, float]]]:
    """Samples until a run's process ends, and of every stage when it ended and its seconds."""
    from spineflow.tasks.runs.directory import RunDirectory

    directory, started = RunDirectory(run), time.perf_counter()
    samples: list[Sample] = []
    ended: dict[str, tuple[float, float]] = {}
    cpu_of: dict[int, float] = {}
    while True:
        is_over = process.poll() is not None
        now = time.perf_counter() - started
        resident, anonymous = looked_at(process.pid, cpu_of)
        samples.append(Sample(now, resident, anonymous, sum(cpu_of.values())))
        if directory.manifest.exists():
            for name, stage in directory.read_manifest()["stages"].items():
                if stage["status"] == "complete" and name not in ended:
                    ended[name] = now, stage["seconds"] or 0.0
        if is_over:
            return samples, ended
        time.sleep(PAUSE)


def looked_at(root: int, cpu_of: dict[int, float]) -> tuple[float, float]:
    """MiB of a process and all that it has started, and of them those in anonymous pages; pages
    that several share count once. The processor seconds of each go into `cpu_of`, where those of
    processes that have ended stay.
    """
    resident = anonymous = 0.0
    for number in processes_of(root):
        try:
            stat = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            cpu_of[number] = (int(stat[11]) + int(stat[12])) / TICKS
            told = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()[1:]
            values = dict(line.split(":", 1) for line in told)
            resident += int(values["Pss"].split()[0]) / 1024
            anonymous += int(values["Pss_Anon"].split()[0]) / 1024
        except (OSError, KeyError):
            continue  # It has ended meanwhile.
    return resident, anonymous


def processes_of(root: int) -> Iterator[int]:
    """A process and all that it has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    pending = [root]
    while pending:
        number = pending.pop()
        yield number
        pending += children.get(number, [])


def print_stages(samples: list[Sample], ended: dict[str, tuple[float, float]]) -> None:
    """A line for every wave of stages, geolevels together, and one for the run."""
    waves: dict[str, list[tuple[float, float]]] = {}
    for end in sorted({end for end, _ in ended.values()}):
        names = [name for name, (own, _) in ended.items() if own == end]
        told = ", ".join(dict.fromkeys(without_geolevel(name) for name in names))
        waves.setdefault(told, []).append((end, sum(ended[name][1] for name in names)))
    print("| stages | wall s | s of tasks | CPU s | peak MiB | anonymous MiB |")
    print("|---|---:|---:|---:|---:|---:|")
    before = 0.0
    for told, parts in waves.items():
        last = max(end for end, _ in parts)
        _print_line(told, samples, before, last, sum(seconds for _, seconds in parts))
        before = last
    total = sum(seconds for _, seconds in ended.values())
    _print_line("run", samples, 0, samples[-1].seconds, total)


def without_geolevel(stage: str) -> str:
    """What stages of a kind are called at all geolevels, such as `persons measure`."""
    words = stage.split()
    return " ".join(words[:2]) if words[1:2] in (["measure"], ["estimate"]) else stage


def _print_line(
    name: str, samples: list[Sample], first: float, last: float, seconds: float
) -> None:
    during = [sample for sample in samples if first <= sample.seconds <= last]
    cpu = during[-1].cpu - during[0].cpu
    resident = max(sample.resident for sample in during)
    anonymous = max(sample.anonymous for sample in during)
    print(
        f"| {name} | {last - first:.1f} | {seconds:.1f} | {cpu:.1f} | {resident:.0f} | "
        f"{anonymous:.0f} |"
    )


if __name__ == "__main__":
    main()
