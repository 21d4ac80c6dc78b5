"""Damage to the files of a run, one at a time, and what `spineflow resume` makes of it.

    python -m tests.flows.faults [--share 0.1] [--seed N] [PRODUCT ...]

It prints a table of the outcomes, and on standard error every fault of the program.

For each product a small run is made, private where the product measures, and its directory is
kept as it was at three moments: `charged`, with nothing drawn (of a run that is not charged `read`,
with its input read); `checked`, before the release gets its name; `complete`. What is decided on
the way, as of `tune`, has the last two. Then, for every file of every directory that was kept, a
copy is made, the file is deleted in it or one bit in its middle is flipped, and the run is resumed.
That should end in one of these:

- mended: the run is complete, and every file that is released is as it was.
- held: it was refused in one sentence that names the file and a remedy.
- idle: the file decides nothing; it stays as the damage left it, and the run is complete.

Whatever happens, measurements that were published before the damage must not change: noise is
drawn once. Everything else is a fault of the program, and is listed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from unittest import mock

from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows.cli import _quieten
from spineflow.flows.cli import main as spineflow
from spineflow.flows.running import call_stages, prepare
from spineflow.flows.stages import Stopped
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.product import OF_ONE_INPUT, TOGETHER, product
from spineflow.tasks.runs.damage import record_files
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import SpineflowError

from tests.conftest import PrefectServer
from tests.flows.commands import STAGE_LINE
from tests.flows.in_process import stages_in_process
from tests.flows.schedules import PEOPLE
from tests.flows.small_runs import of_measurements, of_several, settings_files

CHARGED, READ, CHECKED, COMPLETE = "charged", "read", "checked", "complete"
DAMAGES = ("deleted", "flipped")
MENDED, HELD, IDLE, FAULT = "mended", "held", "idle", "fault"
PRODUCTS = (*OF_ONE_INPUT, "evidence", "tune", "products")

MOMENTS = {
    "estimate": {"ingest": READ, "checks": CHECKED},
    "evidence": {"ingest": READ, "publish": CHECKED},
}
"""After which stage a run is kept; else after the charge, and after the checks."""

CUT_SHORT = {
    "tune": "spineflow.flows.tune.release_settings",
    "products": "spineflow.flows.products.write_index",
}
"""Of products whose flow decides what comes next, and so needs a server: what makes the release."""

IDLE_FILES = (
    ".lock",
    "work.jsonl",
    "spine/charged.json",  # The ledger has the same.
    "validation/data_docs/",
    "validation/rules.json",
    "confidential/data_docs/",
    "confidential/findings.json",
    "confidential/input_",
    "confidential/detailed_groups/persons",  # What is measured are counts of them.
)
"""Files that decide nothing of a run that has been charged, with the folders of such."""

IDLE_ONCE_MEASURED = (".identity", "confidential/")
"""What decides nothing more when there is nothing left to draw."""

TIMED = ("report/", "evidence/found/")
"""What tells how long the run took, and so is not made again in the same bytes."""

REMEDIES = ("restore", "put it back", "put them back", "start a new run", "remove", "resume")


@dataclass(frozen=True)
class Fault:
    """A file of a run, relative to its directory, and what is done to it at a moment."""

    product: str
    moment: str
    file: str
    damage: str

    def __str__(self) -> str:
        return f"{self.product}, {self.moment}: {self.file} {self.damage}"


@dataclass(frozen=True)
class Outcome:
    """What became of a run: how it ended, and what is wrong with that; empty if nothing is."""

    how: str
    wrong: str = ""


class Office:
    """Runs of every product, as they were at every moment, each with a ledger of its own."""

    def __init__(self, folder: Path, products: Sequence[str], *, tables: bool = True) -> None:
        self.folder = folder
        self.world = folder / "world"
        self.world.mkdir()
        with contextlib.redirect_stdout(None):
            set_caps(open_ledger(self.world / "ledger.db"), PEOPLE, Caps(Fraction(1000)))
        files = settings_files(folder, tables=tables)
        files |= of_several(folder, files)
        # What all together have spent, which certificates tell, takes seconds to be worked out.
        capped = folder / "capped"
        shutil.copytree(self.world, capped)
        if "estimate" in products:
            files["estimate"] = of_measurements(folder, files["topdown"])
        for name in products:
            self._bring(capped)
            if name in CUT_SHORT:
                self._cut_short(name, files[name])
            else:
                self._run(name, files[name])
            shutil.rmtree(self.world / name)
            root = self.at(name, CHECKED)
            with told() as words:
                assert spineflow(["resume", str(root)]) == 0, words.getvalue()
            self._keep(name, COMPLETE)

    def _run(self, name: str, file: Path) -> None:
        """Run a product, keeping the world as it is at some moments, until the last of them."""
        settings = product(name).load(file)
        run = prepare(settings, self.world / name)
        wanted = dict(MOMENTS.get(name, {"ledger": CHARGED, "checks": CHECKED}))

        def ended(stage: str) -> None:
            if stage in wanted:
                record_files(run)
                self._keep(name, wanted.pop(stage))
            if not wanted:
                raise Stopped

        call_stages(run, settings, ended=ended)

    def _cut_short(self, name: str, file: Path) -> None:
        """Run a product until it would make its release, and keep the world as it is then."""
        cut = SpineflowError("cut short")
        with told() as words, mock.patch(CUT_SHORT[name], side_effect=cut):
            spineflow(["run", name, str(file), "--run-dir", str(self.world / name)])
        assert "cut short" in words.getvalue(), words.getvalue()
        self._keep(name, CHECKED)

    def _bring(self, kept: Path) -> None:
        """Have the world as it was kept."""
        shutil.rmtree(self.world)
        shutil.copytree(kept, self.world, symlinks=True)

    def _keep(self, name: str, moment: str) -> None:
        kept = self.folder / "kept" / name / moment
        shutil.copytree(self.world, kept, symlinks=True)

    def kept(self, name: str, moment: str) -> Path:
        """A run's directory as it was at a moment."""
        return self.folder / "kept" / name / moment / name

    def at(self, name: str, moment: str) -> Path:
        """Bring the world back to a moment; the run's directory, which is the one that draws, as
        are those of the products in it."""
        self._bring(self.folder / "kept" / name / moment)
        root = self.world / name
        for own in [root, *(file.parent for file in root.glob("*/manifest.json"))]:
            if own.joinpath("spine", "charged.json").exists():
                with told() as words:
                    assert spineflow(["ledger", "move", str(own)]) == 0, words.getvalue()
        return root

    def faults(self, name: str) -> Iterator[Fault]:
        """Every damage to every file of a run at every moment."""
        kept = {path.name for path in self.folder.joinpath("kept", name).iterdir()}
        for moment in (one for one in (CHARGED, READ, CHECKED, COMPLETE) if one in kept):
            for file in files_of(self.kept(name, moment)):
                for damage in DAMAGES:
                    yield Fault(name, moment, file, damage)

    def suffered(self, fault: Fault) -> Outcome:
        """Damage a copy of the run as it was, resume it, and judge what becomes of it."""
        root = self.at(fault.product, fault.moment)
        before = measurements(root)
        do_damage(root / fault.file, fault.damage)
        with told() as words:
            try:
                code = spineflow(["resume", str(root)])
            except BaseException as error:
                return Outcome("raised", f"{type(error).__name__}: {error}")
        redrawn = [
            name
            for name, content in measurements(root).items()
            if before.get(name, content) != content and name != fault.file
        ]
        if redrawn:
            return Outcome("redrawn", f"{redrawn[0]} has changed")
        if code:
            return Outcome(HELD, wrong_with(words.getvalue(), fault.file))
        return self._judged(root, fault, before)

    def _judged(self, root: Path, fault: Fault, before: dict[str, bytes]) -> Outcome:
        """What a run is like that was resumed to its end."""
        was = (self.kept(fault.product, fault.moment) / fault.file).read_bytes()
        file = root / fault.file.replace("release-unchecked/", "release/")
        if fault.file in before and (not file.exists() or file.read_bytes() != before[fault.file]):
            return Outcome("done", "a published measurement is not as it was")
        if RunDirectory(root).read_manifest()["status"] != "complete":
            return Outcome("done", "the run is not complete")
        if fault.moment not in (CHARGED, READ):
            other = different(root, self.kept(fault.product, COMPLETE))
            if other:
                return Outcome("done", f"{other[0]} is not as it was")
        if fault.file.startswith("release-unchecked/"):
            return Outcome(MENDED)
        if file.exists():
            now = file.read_bytes()
            is_timed = within_part(fault.file).startswith(TIMED) and now != flipped(was)
            if fault.damage == "deleted" or now == was or is_timed:
                return Outcome(MENDED)
        idle = IDLE_FILES + (() if fault.moment == CHARGED else IDLE_ONCE_MEASURED)
        return Outcome(
            IDLE, "" if within_part(fault.file).startswith(idle) else "the damage stays, unsaid"
        )


def files_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def within_part(file: str) -> str:
    """A file's name in the run that it is of, which may be one of the products in another's."""
    first, _, rest = file.partition("/")
    return rest if first in TOGETHER else file


def measurements(root: Path) -> dict[str, bytes]:
    """The noisy measurements of a run by name; constraints beside them have no noise."""
    names = [name for name in files_of(root) if within_part(name).startswith("measurements/")]
    return {name: (root / name).read_bytes() for name in names if "/constraints/" not in name}


def different(root: Path, other: Path) -> list[str]:
    """Released files that two runs do not have alike, but for the certificates, which tell what
    the dataset has spent so far, and when, and for the seconds among the figures of methods."""
    one, two = (
        {
            name: re.sub(rb"(?m)^.*,seconds,.*$", b"", (run / name).read_bytes())
            for name in files_of(run)
            if within_part(name).startswith("release/") and "certificate" not in name
        }
        for run in (root, other)
    )
    return [name for name in sorted({*one, *two}) if one.get(name) != two.get(name)]


def do_damage(file: Path, damage: str) -> None:
    """Delete a file, or flip a bit in its middle; of an empty file there is no bit to flip."""
    if damage == "deleted":
        file.unlink()
        return
    content = flipped(file.read_bytes())
    file.chmod(0o600)
    file.write_bytes(content)


def flipped(content: bytes) -> bytes:
    """A file's content with the lowest bit of the byte in its middle flipped."""
    damaged = bytearray(content or b" ")
    damaged[len(damaged) // 2] ^= 1
    return bytes(damaged)


def wrong_with(words: str, file: str) -> str:
    """What is wrong with a refusal, which should be one sentence with the file and a remedy."""
    said = STAGE_LINE.sub("", words).splitlines()
    lines = [line for line in said if not line.startswith(("warning: ", "note: "))]
    if len(lines) != 1 or not lines[0].startswith("spineflow: "):
        return f"not one sentence: {words}"
    if Path(file).name not in words:
        return f"the file is not named: {words}"
    if not any(remedy in words for remedy in REMEDIES):
        return f"there is no remedy: {words}"
    return ""


@contextlib.contextmanager
def told() -> Iterator[io.StringIO]:
    """What is printed on standard error in the block; what goes to standard output is dropped."""
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()) as errors:
        yield errors


def tried(
    products: Sequence[str], share: float, seed: str, folder: Path
) -> Iterator[tuple[Fault, Outcome]]:
    """A share of all faults of some products, chosen by a seed, each with its outcome."""
    chance = random.Random(seed)
    for decided_on_the_way in (False, True):
        chosen = [name for name in products if (name in CUT_SHORT) is decided_on_the_way]
        if not chosen:
            continue
        place = folder / ("served" if decided_on_the_way else "here")
        place.mkdir()
        with served(place) if decided_on_the_way else stages_in_process(judged_twice=False):
            office = Office(place, chosen)
            for name in chosen:
                for fault in office.faults(name):
                    if chance.random() < share:
                        yield fault, office.suffered(fault)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[None]:
    """In the block runs report to a server, whose home is in a folder."""
    (folder / "server").mkdir()
    server = PrefectServer.on_free_port(folder / "server")
    server.start()
    try:
        with temporary_settings({PREFECT_API_URL: server.environment["PREFECT_API_URL"]}):
            yield
    finally:
        server.stop()


def table(counts: Mapping[tuple[str, str, str], int]) -> str:
    """How often each outcome came by product and moment, as Markdown."""
    columns = (MENDED, HELD, IDLE, FAULT)
    lines = [f"| product | moment | tried | {' | '.join(columns)} |", "|---" * 7 + "|"]
    for product_name, moment in dict.fromkeys(key[:2] for key in counts):
        own = [counts.get((product_name, moment, how), 0) for how in columns]
        cells = " | ".join(map(str, [sum(own), *own]))
        lines.append(f"| {product_name} | {moment} | {cells} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("products", nargs="*", default=PRODUCTS, metavar="PRODUCT")
    parser.add_argument("--share", type=float, default=1.0, help="of all faults, by chance")
    parser.add_argument("--seed", default="0", help="which faults are chosen")
    options = parser.parse_args()
    os.environ["SPINEFLOW_LEDGERS"] = ""  # These are no ledgers of this machine.
    _quieten("CRITICAL")
    counts: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="spineflow-faults-") as folder:
        for fault, outcome in tried(options.products, options.share, options.seed, Path(folder)):
            counts[fault.product, fault.moment, FAULT if outcome.wrong else outcome.how] += 1
            if outcome.wrong:
                print(f"{fault}: {outcome.how}: {outcome.wrong}", file=sys.stderr, flush=True)
    print(table(counts))
    return int(any(how == FAULT for _, _, how in counts))


if __name__ == "__main__":
    sys.exit(main())
