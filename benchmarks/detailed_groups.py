"""Time and memory of a private run of detailed groups, and how they grow.

Run `.venv/bin/python -m benchmarks.detailed_groups [--persons 200000 --tracts 300 --states 44,09]
[--specification DIR]` from the repository's root. Persons are generated. The specification is
generated too, with as many iterations as a real one, unless a parameters directory is given.
`--census DIR` takes `persons.parquet`, `units.parquet` and `grfc.txt` of a folder instead of
generated persons.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def settings_text(parameters: Path, data: Path, census: bool, states: list[str]) -> str:
    if census:
        names = {"persons": "persons.parquet", "units": "units.parquet", "geography": "grfc.txt"}
        tables = "\n".join(f'{key} = "{data / name}"' for key, name in names.items())
    else:
        tables = f'data = "{data}"'
    return (
        f'[input]\nparameters = "{parameters}"\n{tables}\n[privacy]\ndataset = "benchmark"\n'
        f"[mechanism]\nrun_pr = false\nstates = {json.dumps(states)}\n"
    )


def main() -> None:
    from spineflow.tasks.detailed_groups.ingest.generate import (
        generate_persons,
        generate_specification,
    )
    from spineflow.tasks.detailed_groups.workload.parameters import read_specification

    parser = argparse.ArgumentParser()
    parser.add_argument("--persons", type=int, default=200_000)
    parser.add_argument("--tracts", type=int, default=300)
    parser.add_argument("--states", default="44,09")
    parser.add_argument("--specification", type=Path)
    parser.add_argument("--census", type=Path)
    options = parser.parse_args()
    states = options.states.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = options.specification or folder / "params"
        if options.specification is None:
            generate_specification(
                parameters, regional=24, detailed=1457, ethnicities=30, states=states
            )
        data = options.census or folder / "data"
        if options.census is None:
            codes = list(read_specification(str(parameters)).names)
            generate_persons(
                data, codes, persons=options.persons, tracts=options.tracts, states=states
            )
        settings = folder / "settings.toml"
        settings.write_text(
            settings_text(parameters.resolve(), data.resolve(), options.census is not None, states)
        )
        command = [
            sys.executable,
            "-m",
            "spineflow.flows.cli",
            "run",
            "detailed-groups",
            str(settings),
        ]
        start = time.perf_counter()
        subprocess.run(
            [*command, "--run-dir", str(folder / "run")],
            cwd=folder,
            check=True,
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        stages = json.loads((folder / "run" / "manifest.json").read_text())["stages"]
        print({stage: entry["seconds"] for stage, entry in stages.items()})
        print(
            f"wall {time.perf_counter() - start:.1f} s, processor "
            f"{used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss / 2**20:.2f} GiB"
        )


if __name__ == "__main__":
    main()
