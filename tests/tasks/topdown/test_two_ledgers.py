"""People whom one ledger of a machine knows are not new to another, until the two are joined."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from spineflow.flows.ledger import WrittenCaps, init_ledger, join
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.charging import warnings_of
from spineflow.tasks.ledger.identity import list_file, list_ledger, listed_ledgers
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.runs.settings_files import dump_settings
from spineflow.tasks.topdown.ingest.ingest import ingest_input
from spineflow.tasks.topdown.measurement.measure import measure_once
from spineflow.tasks.topdown.measurement.public_answers import constrain_universe
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import write_universe_spine
from spineflow.tasks.topdown.spine.files import RunUniverse, read_shards

from tests.tasks.topdown.offices import Office, office

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A list of ledgers of the test's own."""
    monkeypatch.setenv("SPINEFLOW_LEDGERS", str(tmp_path / "state" / "ledgers"))
    yield tmp_path / "state" / "ledgers"


class Folder:
    """A folder with the tables, settings and ledger of an office, and runs on them."""

    def __init__(self, folder: Path, tables: Office, *, confidential: bool = True) -> None:
        folder.mkdir()
        self.folder = folder
        self.ledger = folder / "ledger.db"
        self.settings = tables.settings(folder, dataset=folder.name, confidential=confidential)

    def read(self, name: str = "run") -> tuple[RunDirectory, TopdownSettings]:
        """A run that has read its input."""
        run = RunDirectory(self.folder / name)
        text = dump_settings(self.settings)
        start_run(run, product="topdown", settings_text=text, stamp=self.settings.stamp)
        ingest_input(run, self.settings)
        write_universe_spine(run, self.settings, "residents")
        return run, self.settings

    def charged(self, name: str = "run") -> tuple[RunDirectory, TopdownSettings]:
        """A run that was charged."""
        run, settings = self.read(name)
        TOPDOWN.charge_run(run, settings)
        return run, settings


def measured(run: RunDirectory, settings: TopdownSettings) -> None:
    """Draw what is charged, as a resumed run does."""
    TOPDOWN.charge_run(run, settings)
    constrain_universe(run, settings, "residents")
    for shard in read_shards(spine_folder(run, "residents")):
        measure_once(RunUniverse(run, settings, "residents"), shard)


def rho_of(ledger: Path) -> dict[str, str]:
    found = summary(open_ledger(ledger, must_exist=True))["datasets"]
    return {name: dataset["rho"] for name, dataset in found.items()}


def test_people_of_another_ledger_are_refused_until_they_are_joined(tmp_path: Path) -> None:
    """Threat model: the same people under another ledger."""
    known = Folder(tmp_path / "known", office())
    first = known.charged()
    part = replace(office(), people=office().people.query("section < 1060"))
    other = Folder(tmp_path / "other", part)
    run, settings = other.read()
    told = f"another ledger of this machine, {known.ledger}, knows as dataset 'known'"
    with pytest.raises(BudgetRefused, match=told) as refused:
        TOPDOWN.charge_run(run, settings)
    assert f"spineflow ledger join {known.ledger} --ledger {other.ledger}" in str(refused.value)
    assert rho_of(other.ledger) == {}
    join(known.ledger, file=other.ledger)
    assert rho_of(other.ledger) == rho_of(known.ledger) == {"known": "1"}
    assert listed_ledgers() == [other.ledger]
    # They are recognised by the digests under the other's key, which are those of this run, too.
    with pytest.raises(BudgetRefused, match="ledger knows as dataset 'known'"):
        TOPDOWN.charge_run(run, settings)
    # The run that was charged to the one goes on under the other, at no further cost.
    measured(*first)
    assert rho_of(other.ledger) == {"known": "1"}
    renamed = Folder(tmp_path / "again", office())
    with pytest.raises(BudgetRefused, match=str(other.ledger)):
        renamed.charged()


def test_other_people_and_the_same_ledger_are_let_pass(tmp_path: Path) -> None:
    known = Folder(tmp_path / "known", office())
    known.charged()
    known.charged("again")
    Folder(tmp_path / "other", office(2)).charged()
    assert listed_ledgers() == [known.ledger, tmp_path / "other" / "ledger.db"]
    assert list_file().stat().st_mode & 0o777 == 0o600


def test_a_ledger_made_after_the_input_was_read_is_not_passed_over(tmp_path: Path) -> None:
    """Threat model: the same people under another ledger."""
    run, settings = Folder(tmp_path / "other", office()).read()
    init_ledger(tmp_path / "empty.db", WrittenCaps())
    Folder(tmp_path / "known", office()).charged()
    with pytest.raises(BudgetRefused, match="since this run has read its input"):
        TOPDOWN.charge_run(run, settings)


def test_of_two_runs_at_once_under_two_ledgers_one_is_charged(tmp_path: Path) -> None:
    """Threat model: the same people under another ledger."""
    folders = [Folder(tmp_path / name, office()) for name in ("one", "two")]
    for folder in folders:
        init_ledger(folder.ledger, WrittenCaps())
    runs = [folder.read() for folder in folders]
    with ThreadPoolExecutor() as threads:
        charges = [threads.submit(TOPDOWN.charge_run, *run) for run in runs]
    assert sorted(charge.exception() is None for charge in charges) == [False, True]
    assert sorted(len(rho_of(folder.ledger)) for folder in folders) == [0, 1]


def test_a_joined_ledger_that_is_put_back_is_refused(tmp_path: Path) -> None:
    """Threat model: a join of ledgers killed, or undone by restoring a backup."""
    known, other = Folder(tmp_path / "known", office()), Folder(tmp_path / "other", office(2))
    for folder in (known, other):
        init_ledger(folder.ledger, WrittenCaps())
    files = [known.ledger, Path(f"{known.ledger}.key")]
    kept = [file.read_bytes() for file in files]
    join(known.ledger, file=other.ledger)
    for file, content in zip(files, kept, strict=True):
        file.write_bytes(content)
    with pytest.raises(BudgetRefused, match=f"was joined to {other.ledger}"):
        known.charged()


def test_ledgers_that_cannot_be_asked_are_told_of(tmp_path: Path) -> None:
    """Threat model: a listed ledger missing or unusable."""
    known, other = Folder(tmp_path / "known", office()), Folder(tmp_path / "other", office(2))
    known.charged()
    init_ledger(other.ledger, WrittenCaps(["9"]))
    assert warnings_of(other.settings) == []
    known.ledger.rename(tmp_path / "away.db")
    (told,) = warnings_of(other.settings)
    assert f"the ledger {known.ledger} of this machine's list is missing or cannot be used" in told
    other.charged()
    list_ledger(known.ledger, is_listed=False)
    assert warnings_of(other.settings) == []


def test_a_list_that_others_can_write_is_refused(tmp_path: Path, machine: Path) -> None:
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    known = Folder(tmp_path / "known", office())
    init_ledger(known.ledger, WrittenCaps())
    for place, mode in ((machine, 0o620), (machine.parent, 0o770)):
        before = place.stat().st_mode
        place.chmod(mode)
        with pytest.raises(BudgetRefused, match="can be written by another user"):
            listed_ledgers()
        place.chmod(before)
    assert listed_ledgers() == [known.ledger]
    machine.chmod(0o620)
    with pytest.raises(BudgetRefused, match="can be written by another user"):
        known.charged()
    machine.unlink()
    assert listed_ledgers() == []
    machine.parent.chmod(0o770)
    with pytest.raises(BudgetRefused, match="can be written by another user"):
        known.charged()
