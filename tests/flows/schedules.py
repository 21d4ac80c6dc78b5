"""Random schedules of what befalls runs and their ledger, judged by the noise that is published.

A `World` is a folder with a ledger and runs of every product that have read their input. A schedule
starts, kills, copies, restores, edits, resumes, reports and deletes at random; after every step the
files of all copies are held against the ledger. Commands are forks of the test's process.

What a command should answer is told beforehand from what was done to its run (`World.expected`).
Where it depends on what the schedule cannot know, such as how far a killed command came, several
exit codes are expected, and the accounts still have to be right.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal

from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory, identity_of

from tests.flows.forked_commands import Kill, begun
from tests.flows.published_noise import (
    FileNoise,
    digest_of,
    loss_of,
    measurement_names,
    noise_of,
    read_ledger,
    unfinished_digests,
)

PEOPLE = "people"
"""The dataset of all runs."""

DONE, UNFORESEEN, REFUSED, UNUSABLE = 0, 1, 2, 3
ANY = frozenset(range(6))
"""Exit codes of commands."""

Kind = Literal["run", "resume", "report", "move"]


class PromiseBroken(AssertionError):
    """A schedule has ended as it must not; the text tells how, and which one it was."""


def template(folder: Path, files: dict[str, Path]) -> None:
    """Fill a folder with a capped ledger, and a run of each product that waits for its charge."""
    with contextlib.redirect_stdout(None):
        set_caps(open_ledger(folder / "ledger.db"), PEOPLE, Caps(Fraction(1000)))
        for name, file in files.items():
            settings = product(name).load(file)
            run = prepare(settings, folder / name)
            call_stages(run, settings, before="ledger")


@dataclass
class Directory:
    """A run's directory, and what the schedule has done to it.

    files : what stood in the files that were edited, altered or removed since, by name.
    edited : names of the settings, and of files that were charged, if they were edited.
    lost : names of measurements that were altered or removed.
    forged : names of measurements that the schedule put there.
    replaced : names of confidential files that were replaced after the charge.
    """

    root: Path
    product: str
    files: dict[str, bytes] = field(default_factory=dict)
    edited: set[str] = field(default_factory=set)
    forged: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.root)

    def done(self) -> tuple[set[str], ...]:
        """All that was done to it."""
        return self.edited, self.forged, self.lost, self.replaced

    def is_clean(self) -> bool:
        return not any(self.done())

    @property
    def run_id(self) -> str | None:
        return self.run.read_manifest()["run_id"] if self.run.manifest.exists() else None


class World:
    """A ledger, runs and their copies; what was done to them, and what they have published.

    files : settings files by product.
    lengths : how many changes a whole run of each product makes; a kill is before one of them.
    costs : bounded rho of a run of each product.
    samples : the measurement files of a run of each product.
    """

    def __init__(
        self,
        folder: Path,
        logs: Path,
        files: dict[str, Path],
        lengths: dict[str, dict[str, int]],
        costs: dict[str, Fraction],
        samples: dict[str, dict[str, bytes]],
        seed: str,
    ) -> None:
        self.folder, self.logs, self.files = folder, logs, files
        self.lengths, self.costs, self.samples = lengths, costs, samples
        self.random = random.Random(seed)
        self.ledger = folder / "ledger.db"
        self.key = folder / "ledger.db.key"
        self.directories = [Directory(folder / name, name) for name in files]
        self.trace: list[str] = [f"seed {seed}"]
        self.linked: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.noises: dict[str, dict[str, FileNoise]] = defaultdict(dict)
        self.false: set[str] = set()
        self.backups: dict[Path, tuple[Path, str]] = {}
        self.view = read_ledger(self.ledger)
        self.newest = {path: path.read_bytes() for path in (self.ledger, self.key)}

    # What the schedule does.

    def step(self, operations: Sequence[Callable[[World], None]]) -> None:
        """One random operation, and the accounts after it."""
        self.random.choice(operations)(self)
        self.observe()

    def say(self, text: str) -> None:
        self.trace.append(text)

    def fail(self, text: str) -> None:
        raise PromiseBroken("\n".join([text, "after:", *self.trace]))

    def chosen(self, *, begun: bool = False) -> Directory:
        """A directory at random; `begun` has a manifest."""
        found = [d for d in self.directories if not begun or d.run_id is not None]
        return self.random.choice(found or self.directories)

    def killed_at(self, directory: Directory) -> Kill:
        kind = self.random.choice(("any", "critical"))
        return kind, self.random.randint(1, self.lengths[directory.product][kind])

    def arguments(self, kind: Kind, directory: Directory) -> list[str]:
        root = str(directory.root)
        if kind == "run":
            settings = str(self.files[directory.product])
            return ["run", directory.product, settings, "--run-dir", root]
        return ["ledger", "move", root] if kind == "move" else [kind, root]

    def command(self, kind: Kind, directory: Directory, *, killed: bool = False) -> int | None:
        """A command on a run, killed or not; it must answer as expected."""
        kill = self.killed_at(directory) if killed else None
        expected, may_draw = self.expected(kind, directory), self.may_draw(directory)
        before = self.published()
        command = begun(self.arguments(kind, directory), self.folder, self.logs, kill)
        code = command.ended()
        self.say(f"{kind} {directory.root.name} {kill or ''} -> {code} of {sorted(expected)}")
        if code is not None and code not in expected:
            self.fail(f"exit code {code}: {command.told()}")
        is_refused = not expected & {DONE, UNFORESEEN}
        if (is_refused or not may_draw) and self.published() != before:
            self.fail("what should have been refused was drawn")
        return code

    def published(self) -> Mapping | None:
        """What was published by the ledger as it stands; None where there is none."""
        return read_ledger(self.ledger).published if self.ledger.exists() else None

    def may_draw(self, directory: Directory) -> bool:
        """Whether a directory is the one in which its run draws, or may become it.

        And whether the people are there for whom it was charged.
        """
        if directory.replaced and self.is_charged(directory):
            return False
        known = self.view.directories.get(directory.run_id)
        return known is None or known == identity_of(directory.run)

    # What it knows.

    def is_usable(self) -> bool:
        """Whether the ledger is the one that its key's mark is of, or one state ahead of it."""
        if not self.ledger.exists() or not self.key.exists():
            return False
        _, _, number, mark = self.key.read_text(encoding="ascii").split()
        sequence, state, before = read_ledger(self.ledger).state
        return (int(number), mark) in ((sequence, state), (sequence - 1, before))

    def is_charged(self, directory: Directory) -> bool:
        return any(run == directory.run_id for run, _ in self.view.draws)

    def expected(self, kind: Kind, directory: Directory) -> set[int]:
        """The exit codes with which a command may end that nobody kills."""
        if directory.run_id is None:
            return self.expected_of_start(directory) if kind == "run" else {REFUSED}
        if "settings.toml" in directory.edited:
            return {REFUSED} | (self.expected_of_move(directory) if kind == "move" else set())
        if kind == "move":
            return self.expected_of_move(directory)
        if kind == "report":
            return self.expected_of_report(directory)
        return self.expected_of_resume(directory)

    def expected_of_start(self, directory: Directory) -> set[int]:
        if not self.is_usable():
            return {UNUSABLE}
        cap = self.view.caps[PEOPLE]
        fits = self.view.spent(PEOPLE) + self.costs[directory.product] <= cap
        return {DONE if fits else UNUSABLE}

    def expected_of_move(self, directory: Directory) -> set[int]:
        is_known = self.is_charged(directory) and self.is_usable()
        return {DONE if is_known and self.has_all(directory) else UNUSABLE}

    def has_all(self, directory: Directory) -> bool:
        """Whether a directory has every file that its run has published, named or not."""
        found = {name: digest_of(path) for name, path in measurement_names(directory.root).items()}
        held = unfinished_digests(directory.root)
        known = self.view.published_by(directory.run_id)
        return all(
            found.get(name) == d or (name not in found and d in held) for name, d in known.items()
        )

    def expected_of_report(self, directory: Directory) -> set[int]:
        if not directory.run.release.exists():
            return {REFUSED}
        if not self.is_usable() and self.ledger.exists():
            return {UNUSABLE, REFUSED} if directory.edited else {UNUSABLE}
        if directory.edited:
            return {REFUSED}
        return set(ANY) if directory.lost or directory.forged else {DONE}

    def expected_of_resume(self, directory: Directory) -> set[int]:
        if directory.edited:
            is_kept = (directory.root / "spine" / "charged.json").exists()
            if not is_kept and not self.is_charged(directory):
                return set(ANY)
            return {REFUSED} if is_kept else {REFUSED, UNUSABLE}
        known = self.view.published_by(directory.run_id)
        names = measurement_names(directory.root)
        found = {name: digest_of(path) for name, path in names.items()}
        is_released = directory.run.release.exists()
        is_whole = known.keys() <= found.keys()
        if is_released and is_whole:
            return {DONE if all(found[name] == d for name, d in known.items()) else UNUSABLE}
        if not self.is_usable():
            return {UNUSABLE}
        held = unfinished_digests(directory.root)
        is_recoverable = all(found.get(name, d) == d or d in held for name, d in known.items())
        is_lost = any(name not in found and d not in held for name, d in known.items())
        if not is_recoverable or is_lost or found.keys() - known.keys():
            return {UNUSABLE}
        if not self.is_charged(directory):
            return self.expected_of_start(directory)
        return {DONE} if self.may_draw(directory) else {DONE, UNUSABLE}

    # What it sees.

    def observe(self) -> None:
        """Hold all that is linked in any copy against the ledger, and against what was before."""
        if self.is_usable():
            self.view = read_ledger(self.ledger)
            self.newest = {path: path.read_bytes() for path in self.newest}
        identities = [identity_of(d.run) for d in self.directories if d.run_id]
        if len(set(identities)) < len(identities):
            self.fail("two directories cannot be told apart")
        for directory in self.directories:
            if (run_id := directory.run_id) is None:
                continue
            for name, path in measurement_names(directory.root).items():
                if (digest := digest_of(path)) in self.false:
                    continue
                self.linked[run_id, name].add(digest)
                if len(self.linked[run_id, name]) > 1:
                    self.fail(f"{name} of {run_id} was drawn twice")
                if self.view.published.get((run_id, name)) != digest:
                    self.fail(f"{name} of {run_id} is linked, and the ledger does not know it")
                if (noise := cached_noise(digest, name, path)) is not None:
                    self.noises[run_id][name] = noise
        self.hold_against_charges()

    def hold_against_charges(self) -> None:
        """The published noise of every draw, and of the dataset, costs no more than was charged."""
        published = Fraction(0)
        for run_id, files in self.noises.items():
            for draw in {file.draw for file in files.values()}:
                own = [file for file in files.values() if file.draw == draw]
                row = self.view.draws.get((run_id, draw))
                if row is None:
                    self.fail(f"{draw} of {run_id} was published and is not charged")
                loss = loss_of(own)
                if loss > row.parameter:
                    self.fail(f"{draw} of {run_id} costs {loss} and was charged {row.parameter}")
                if row.n_values is not None and sum(f.n_values for f in own) > row.n_values:
                    self.fail(f"{draw} of {run_id} has more values than were charged")
                if not frozenset().union(*(f.variances for f in own)) <= row.variances:
                    self.fail(f"{draw} of {run_id} has noise that was not charged")
                published += row.bounded_rho * loss / row.parameter
        if published > self.view.spent(PEOPLE):
            self.fail("the dataset has published more than its ledger says")
        if self.view.spent(PEOPLE) > self.view.caps[PEOPLE]:
            self.fail("the dataset has spent more than its cap")

    # How it ends.

    def healed(self) -> None:
        """Put everything back: every charged run ends in success, or lacks what it published."""
        for path, content in self.newest.items():
            put(path, content)
        for directory in self.directories:
            undo(directory)
        self.say("all is put back")
        self.observe()
        for run_id in sorted({run for run, _ in self.view.draws}):
            copies = [d for d in self.directories if d.run_id == run_id]
            here = self.view.directories.get(run_id)
            owners = [d for d in copies if identity_of(d.run) == here]
            if not owners:
                owners = [d for d in copies if self.has_all(d)] or copies[:1]
                self.command("move", owners[0])
                self.observe()
            self.command("resume", owners[0])
            self.observe()


@cache
def cached_noise(_digest: str, name: str, path: Path) -> FileNoise | None:
    return noise_of(name, path)


def put(path: Path, content: bytes) -> None:
    """Put a file back in place of whatever is there, with the permissions of a key."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def undo(directory: Directory) -> None:
    """Put back what was edited or removed, and take away what was forged."""
    for name in directory.forged:
        (directory.root / name).unlink(missing_ok=True)
    for name, content in directory.files.items():
        put(directory.root / name, content)
    for done in (directory.files, *directory.done()):
        done.clear()
