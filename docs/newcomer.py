"""A newcomer's minutes: from a clone to the report of a table, in commands and seconds.

    python3 docs/newcomer.py [--from PLACE] [--rows 10000]

Clones the repository into a temporary folder, follows docs/tutorial.md with its settings, and
prints every command with its seconds. The environment is new and has no compiled kernels. Needs
Python 3.11, git and a package index.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_tables(folder: Path, rows: int) -> None:
    """Areas, and residents with a row for each person."""
    drawn = random.Random(2024)
    sections = [(f"{region}", f"{region}{town}") for region in "NS" for town in range(4)]
    sections = [(*place, f"{place[1]}{number}") for place in sections for number in range(6)]
    with (folder / "areas.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("region", "town", "section"), *sections])
    with (folder / "residents.csv").open("w", newline="") as file:
        people = (
            (drawn.choice(sections)[2], drawn.choice("fm"), int(100 * drawn.betavariate(2, 3)))
            for _ in range(rows)
        )
        csv.writer(file).writerows([("section", "sex", "age"), *people])


def from_tutorial(kind: str) -> str:
    """The blocks of a kind in docs/tutorial.md, one after the other."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    return "".join(re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


def main() -> None:
    """Follow the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="place", default=str(ROOT), help="repository to clone")
    parser.add_argument("--rows", type=int, default=10_000, help="persons of the table")
    options = parser.parse_args()
    settings, commands = from_tutorial("toml"), from_tutorial("sh")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {"PREFECT_HOME": str(folder / "prefect"), "PLACE": options.place}
        (folder / "mine").mkdir()
        write_tables(folder / "mine", options.rows)
        (folder / "mine" / "settings.toml").write_text(settings, encoding="utf-8")
        total = 0.0
        for command in commands.splitlines():
            start = time.perf_counter()
            subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            seconds = time.perf_counter() - start
            total += seconds
            print(f"{seconds:7.1f} s  {command}", flush=True)
        (report,) = (folder / "mine").glob("runs/*/report/report.html")
        print(
            f"{total:7.1f} s  {len(commands.splitlines())} commands, to a report of "
            f"{report.stat().st_size:,} bytes on {options.rows:,} rows"
        )


if __name__ == "__main__":
    main()
