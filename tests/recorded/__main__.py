"""Command that records the digests of all runs anew, or of some.

`python -m tests.recorded [RUN ...]`. With `--folder` nothing is recorded, and the files of the runs
are left in a folder, by which two versions can be compared.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import tests.conftest  # noqa: F401  Sets the environment before Prefect is imported.
from tests.recorded.record import record, recorded
from tests.recorded.runs import RUNS, digests, make


def main() -> None:
    """Make the runs one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="names of runs; all by default")
    parser.add_argument("--folder", type=Path, help="leave the files of the runs here")
    options = parser.parse_args()
    if unknown := set(options.runs) - set(RUNS):
        parser.error(f"there is no run {', '.join(unknown)}; there are {', '.join(RUNS)}")
    known = {} if not options.runs else recorded()
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.runs or RUNS:
            folder = (options.folder or Path(temporary)) / name.replace(" ", "-")
            folder.mkdir(parents=True)
            make(RUNS[name], folder)
            found[name] = digests(RUNS[name], folder)
            print(f"{name}: {len(found[name])} digests", flush=True)
    if options.folder is None:
        record(known | found)


if __name__ == "__main__":
    main()
