"""The promise as a whole: never more published noise than was charged, never a loss in silence.

Random schedules (`schedules`) on small runs of all products. Which ones are played follows from the
session's seed; a failure tells its schedule, and `SPINEFLOW_SOAK_SEED` plays it again.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.running import call_stages
from spineflow.tasks.ledger import charging, store
from spineflow.tasks.ledger.charging import Claim
from spineflow.tasks.ledger.store import Ledger, LedgerKey, Mark
from spineflow.tasks.products.product import OF_ONE_INPUT, product
from spineflow.tasks.runs import damage, steps
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.runs.settings_files import frozen_settings

from tests.conftest import SESSION
from tests.flows.forked_commands import begun
from tests.flows.in_process import stages_in_process, uncompared
from tests.flows.mishaps import back_up, copy, edit, lose, play, restore, resume, resume_and_kill
from tests.flows.published_noise import measurement_names, read_ledger
from tests.flows.schedules import PEOPLE, PromiseBroken, World, template
from tests.flows.small_runs import settings_files

SCHEDULES = 2000
"""Schedules of `make soak`; where the test of `some` is drawn, one of all products together is
played, and one for each of `FEW` others of `TOGETHER` that the seed chooses."""
FEW = 2
AT_ONCE = 100
LENGTH = 7
"""Operations of a schedule."""

MEASURED = tuple(name for name in OF_ONE_INPUT if name != "estimate")
TOGETHER = (
    MEASURED,
    ("group-sizes", "trips"),
    ("topdown",),
    *((name,) for name in MEASURED if name != "topdown"),
)
"""The products of a schedule, in turn: alone, so that their states are visited, and together."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Office:
    """What all schedules begin with: a template of the world, and what its runs are like."""

    folder: Path
    files: dict[str, Path]
    lengths: dict[str, dict[str, int]]
    costs: dict[str, Fraction]
    samples: dict[str, dict[str, bytes]]

    def world(self, seed: str, products: Sequence[str] = ()) -> World:
        """A new world of these products in the one place where worlds are, by default all."""
        folder = self.folder / "world"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "template", folder)
        logs = self.folder / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir()
        files = {name: self.files[name] for name in products or self.files}
        return World(folder, logs, files, self.lengths, self.costs, self.samples, seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory where there is one: a process that is killed takes nothing with it."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("office")
        return
    with tempfile.TemporaryDirectory(prefix="spineflow-", dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def uncharged(folder: Path) -> Iterator[Office]:
    """Runs of all products up to their charge, which no forks have gone on with."""
    files = settings_files(folder, tables=False)
    with stages_in_process(judged_twice=False), uncompared():
        (folder / "world").mkdir()
        template(folder / "world", files)
        shutil.copytree(folder / "world", folder / "template")
        yield Office(folder, files, {}, {}, {})


@pytest.fixture(scope="module")
def office(uncharged: Office) -> Office:
    """The same, one after the other to their end; what they need is imported and compiled."""
    folder, files = uncharged.folder, uncharged.files
    # Here and not in a fork, so that forks find the kernels compiled.
    assert main(["resume", str(uncharged.world("").folder / "topdown")]) == 0
    world = uncharged.world("")
    lengths, costs, samples = {}, {}, {}
    for name in files:
        before, root = read_ledger(world.ledger).spent(PEOPLE), world.folder / name
        command = begun(["resume", str(root)], world.folder, world.logs)
        assert command.ended() == 0, command.told()
        lengths[name] = command.changes()
        costs[name] = read_ledger(world.ledger).spent(PEOPLE) - before
        files_of_run = measurement_names(root).items()
        samples[name] = {own: path.read_bytes() for own, path in files_of_run}
        assert main(["report", str(root)]) == 0
    shutil.copytree(world.folder, folder / "finished")
    return Office(folder, files, lengths, costs, samples)


@pytest.mark.soak
def test_the_certificates_of_all_products_add_up_what_was_charged(office: Office) -> None:
    """Runs of the same people, one after the other, under one ledger.

    Threat model: losses and deltas that add up.
    """
    folder = office.folder / "finished"
    draws = read_ledger(folder / "ledger.db").draws
    spent = Fraction(0)
    for name in office.files:
        run = RunDirectory(folder / name)
        run_id = run.read_manifest()["run_id"]
        own = {draw: row for (run, draw), row in draws.items() if run == run_id}
        assert own
        spent += sum(row.bounded_rho for row in own.values())
        text = (run.release / "certificate.md").read_text(encoding="utf-8")
        assert run_id in text and PEOPLE in text
        assert f"rho {spent}" in text
        assert "FAILED" not in text and "NOT PRIVATE" not in text
        settings = frozen_settings(product(name).settings, run.settings)
        exact = product(name).plan_of(run, settings).exact
        report = run.report.read_text(encoding="utf-8")
        for fact in exact:
            assert fact.fact in text and escape(fact.fact) in report


def delete_draws(ledger: Path, run_id: str | None, at_most: int) -> None:
    """Delete some of a run's draws from a ledger, as by hand: the last of them first."""
    chosen = "SELECT rowid FROM draws WHERE run_id = ? ORDER BY name DESC LIMIT ?"
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute(f"DELETE FROM draws WHERE rowid IN ({chosen})", [run_id, at_most])


@pytest.mark.parametrize("name", MEASURED)
def test_no_release_comes_without_its_draws_in_the_ledger(uncharged: Office, name: str) -> None:
    """Though they were deleted after the last measurement, and one universe's alone.

    Threat model: rows of a run deleted from the ledger.
    """
    world = uncharged.world("", [name])
    directory = world.directories[0]
    run, own = directory.run, product(name)
    settings = frozen_settings(own.settings, run.settings)
    with stages_in_process(judged_twice=False):
        call_stages(run, settings, before="^release$")
        delete_draws(world.ledger, directory.run_id, at_most=1)
        with pytest.raises(BudgetRefused, match="does not hold the charges of run"):
            call_stages(run, settings)
    assert not run.release.exists()
    delete_draws(world.ledger, directory.run_id, at_most=9)
    command = begun(["resume", str(run.root)], world.folder, world.logs)
    assert command.ended() == 3, command.told()
    assert "restore the ledger" in command.told() and not run.release.exists()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> str:
    return request.config.stash[SESSION]["seed"]


def play_some(office: Office, seed: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        play(office.world(f"{seed}/{number}", TOGETHER[number % len(TOGETHER)]), LENGTH)


@pytest.mark.soak(30)
def test_some_of_the_schedules(office: Office, seed: str) -> None:
    assert TOGETHER[0] == MEASURED
    others = random.Random(seed).sample(range(1, len(TOGETHER)), FEW)
    play_some(office, seed, [0, *others])


def draw_in_copies(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(charging, "_check_directory", lambda *_: None)


def compare_no_digests(patched: pytest.MonkeyPatch) -> None:
    """Neither with what was charged, nor with what the manifest says of the same files."""
    for module in (steps, charging, damage):
        patched.setattr(module, "refuse_altered", lambda *_: None)
    patched.setattr(damage, "find_damage", lambda *_: [])


def draw_again(patched: pytest.MonkeyPatch) -> None:
    """What was published and is gone is drawn anew, and takes its place in the ledger."""
    patched.setattr(charging, "verify_published", lambda *_: {})
    patched.setattr(charging, "_published_digest", lambda *_: None)
    record = charging.record_publication

    def recorded_again(ledger: Ledger, claim: Claim, digest: str) -> None:
        with store.writing(ledger) as connection:
            connection.execute(
                "DELETE FROM published WHERE run_id = ? AND name = ?", [claim.run_id, claim.name]
            )
        record(ledger, claim, digest)

    patched.setattr(charging, "record_publication", recorded_again)


def forget_the_mark(patched: pytest.MonkeyPatch) -> None:
    def found(_ledger: Ledger, connection: sqlite3.Connection, _key: LedgerKey) -> Mark:
        return Mark(*connection.execute("SELECT sequence, state FROM ledger").fetchone())

    patched.setattr(store, "_compare", found)


def record_nothing(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(charging, "record_publication", lambda *_: None)


SABOTAGE = {
    draw_in_copies: (resume_and_kill, copy, resume),
    compare_no_digests: (resume_and_kill, edit, resume),
    draw_again: (resume, lose, resume_and_kill),
    forget_the_mark: (resume_and_kill, back_up, restore, resume),
    record_nothing: (resume_and_kill, resume),
}
"""Ways to break the promise, each with the operations among which it shows."""


@pytest.mark.soak
@pytest.mark.parametrize("sabotage", SABOTAGE, ids=lambda sabotage: sabotage.__name__)
def test_a_broken_promise_is_noticed(
    office: Office, seed: str, sabotage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(PromiseBroken):
        # Some dozens show most breaches; hundreds, that it was not for want of luck.
        for number in range(400):
            world = office.world(f"{seed}/{sabotage.__name__}/{number}", ["group-sizes"])
            play(world, LENGTH, SABOTAGE[sabotage])


@pytest.mark.soak(600)
@pytest.mark.parametrize("start", range(0, SCHEDULES, AT_ONCE))
def test_schedules(office: Office, seed: str, start: int) -> None:
    play_some(office, seed, range(start, start + AT_ONCE))
