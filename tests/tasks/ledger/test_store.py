"""A ledger that was put back, a key that lags, other versions, other users, other errors."""

from __future__ import annotations

import os
import shutil
import sqlite3
from fractions import Fraction

import pytest
from spineflow.tasks.ledger import store
from spineflow.tasks.ledger.caps import Caps, set_caps, summary
from spineflow.tasks.ledger.store import Ledger, Mark, open_ledger, read_key, reading, writing
from spineflow.tasks.runs.errors import BudgetRefused


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    ledger = open_ledger(tmp_path / "ledger.db")
    set_caps(ledger, "d", Caps(Fraction(1)))
    return ledger


def kept(ledger: Ledger, name: str):
    return shutil.copy2(ledger.path, ledger.path.with_name(name))


def mark_of(ledger: Ledger) -> Mark:
    return read_key(ledger.key_path).mark


def test_an_older_copy_is_refused(ledger: Ledger) -> None:
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    older = kept(ledger, "older")
    set_caps(ledger, "d", Caps(Fraction(2)))
    newest = kept(ledger, "newest")
    shutil.copy2(older, ledger.path)
    for use in (lambda: open_ledger(ledger.path), lambda: set_caps(ledger, "d", Caps(Fraction(3)))):
        with pytest.raises(BudgetRefused, match="lags behind the mark .*put back the newest copy"):
            use()
    shutil.copy2(newest, ledger.path)
    assert summary(open_ledger(ledger.path))["datasets"]["d"]["cap"] == "2"


def test_another_history_is_refused_however_long(ledger: Ledger, tmp_path) -> None:
    """A copy of ledger and key was used elsewhere and is put back: more states, but others.

    Threat model: ledger, key or list of ledgers damaged, replaced or open to others.
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in (ledger.path, ledger.key_path):
        shutil.copy2(path, elsewhere)
    set_caps(ledger, "d", Caps(Fraction(2)))
    other = open_ledger(elsewhere / "ledger.db")
    for cap in range(2, 9):
        set_caps(other, "d", Caps(Fraction(cap)))
    shutil.copy2(other.path, ledger.path)
    with pytest.raises(BudgetRefused, match="has another history"):
        open_ledger(ledger.path)


class Killed(BaseException):
    """Stands for the end of a process between two writes."""


def test_a_kill_between_ledger_and_mark_locks_nobody_out(ledger: Ledger, monkeypatch) -> None:
    before = mark_of(ledger)

    def killed(*_) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_mark", killed)
        with pytest.raises(Killed):
            set_caps(ledger, "d", Caps(Fraction(2)))
    assert mark_of(ledger) == before
    assert summary(open_ledger(ledger.path))["datasets"]["d"]["cap"] == "2"
    set_caps(ledger, "d", Caps(Fraction(3)))
    assert mark_of(ledger).sequence == before.sequence + 2
    assert summary(ledger)["datasets"]["d"]["cap"] == "3"


def test_a_ledger_two_states_ahead_of_its_mark_is_not_that_of_its_key(ledger: Ledger) -> None:
    key = ledger.key_path.read_bytes()
    for cap in (2, 3):
        set_caps(ledger, "d", Caps(Fraction(cap)))
    ledger.key_path.write_bytes(key)
    with pytest.raises(BudgetRefused, match="is not the one that was used last"):
        open_ledger(ledger.path)


def test_reading_changes_nothing(ledger: Ledger) -> None:
    before = mark_of(ledger)
    with writing(ledger) as connection:
        connection.execute("SELECT * FROM datasets").fetchall()
    with reading(ledger):
        pass
    assert mark_of(ledger) == before


def as_version_1(ledger: Ledger) -> None:
    """Make a ledger what version 0.1.0 would have left of it."""
    key = ledger.key_path.read_text().split()[0]
    fresh = ledger.path.with_name("version_1.db")
    connection = sqlite3.connect(fresh)
    connection.executescript(store._LAYOUTS[0])
    connection.execute(f"PRAGMA application_id = {store.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO ledger VALUES (?)", [read_key(ledger.key_path).fingerprint])
    connection.execute("INSERT INTO datasets VALUES ('d', '5')")
    connection.commit()
    connection.close()
    fresh.chmod(0o600)
    os.replace(fresh, ledger.path)
    ledger.key_path.write_text(f"{key} used\n")


def test_an_older_ledger_is_brought_to_this_version(ledger: Ledger) -> None:
    as_version_1(ledger)
    assert summary(open_ledger(ledger.path, must_exist=True))["datasets"]["d"]["cap"] == "5"
    assert mark_of(ledger).sequence == 1
    assert os.stat(ledger.path).st_mode & 0o777 == 0o600


UNDONE = {
    5: ("ALTER TABLE draws DROP COLUMN stated_factor",),
    4: (
        "DROP TABLE curves",
        "ALTER TABLE draws DROP COLUMN after_results",
        "ALTER TABLE datasets DROP COLUMN epsilon_cap",
        "ALTER TABLE ledger DROP COLUMN epsilon_cap",
    ),
    3: ("DROP TABLE joined", "DROP TABLE joined_runs", "DROP TABLE joined_to"),
    2: ("ALTER TABLE directories DROP COLUMN folder",),
}
"""What makes a ledger one of this layout, of one that has the next."""


@pytest.mark.parametrize("layout", UNDONE)
def test_a_ledger_with_states_is_brought_to_this_version(ledger: Ledger, layout: int) -> None:
    """As an earlier version left it: its state is numbered, and its key has the mark of that."""
    set_caps(ledger, "d", Caps(Fraction(5)))
    with sqlite3.connect(ledger.path) as connection:
        for statements in (UNDONE[older] for older in UNDONE if older >= layout):
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {layout}")
    connection.close()
    before = mark_of(ledger)
    found = summary(open_ledger(ledger.path, must_exist=True))["datasets"]["d"]
    assert (found["cap"], found["epsilon_cap"]) == ("5", None)
    assert mark_of(ledger).sequence == before.sequence + 1


def test_an_older_ledger_does_not_come_back_after_a_newer(ledger: Ledger) -> None:
    as_version_1(ledger)
    older = kept(ledger, "older")
    set_caps(open_ledger(ledger.path), "d", Caps(Fraction(6)))
    shutil.copy2(older, ledger.path)
    with pytest.raises(BudgetRefused, match="lags behind the mark"):
        open_ledger(ledger.path)


def test_a_newer_ledger_says_so(ledger: Ledger) -> None:
    with sqlite3.connect(ledger.path) as connection:
        connection.execute(f"PRAGMA user_version = {store.LAYOUT + 1}")
    connection.close()
    with pytest.raises(BudgetRefused, match="written by a newer version of Spineflow"):
        open_ledger(ledger.path)


def test_a_ledger_that_others_can_write_is_refused(ledger: Ledger) -> None:
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    ledger.path.chmod(0o620)
    with pytest.raises(BudgetRefused, match="can be written by other users"):
        open_ledger(ledger.path)
    ledger.path.chmod(0o600)
    folder = ledger.path.parent
    for mode in (0o777, 0o1777, 0o770, 0o702):
        folder.chmod(mode)
        with pytest.raises(BudgetRefused, match="folder .* can be written by other users"):
            open_ledger(ledger.path)
        with pytest.raises(BudgetRefused, match="folder .* can be written by other users"):
            open_ledger(folder / "new.db")
    assert not (folder / "new.db.key").exists()
    folder.chmod(0o755)
    open_ledger(ledger.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give files away")
def test_a_ledger_of_another_user_is_refused(ledger: Ledger) -> None:
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    os.chown(ledger.path, 65534, 65534)
    with pytest.raises(BudgetRefused, match="belongs to another user"):
        open_ledger(ledger.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give files away")
def test_a_ledger_in_a_folder_of_another_user_is_refused(ledger: Ledger) -> None:
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    os.chown(ledger.path.parent, 65534, 65534)
    with pytest.raises(BudgetRefused, match="folder .* belongs to another user"):
        open_ledger(ledger.path)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda connection: int("no number"),
        lambda connection: connection.execute("SELECT * FROM no_such_table"),
        lambda connection: connection.execute("INSERT INTO inputs VALUES (1)"),
    ],
)
def test_mistakes_of_ours_are_not_taken_for_damage(ledger: Ledger, mistake) -> None:
    with pytest.raises((ValueError, sqlite3.OperationalError)), writing(ledger) as connection:
        connection.execute("UPDATE datasets SET cap = '9'")
        mistake(connection)
    assert summary(ledger)["datasets"]["d"]["cap"] == "1"


def test_a_held_ledger_is_known_by_its_code(ledger: Ledger, monkeypatch) -> None:
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.01)
    connection = sqlite3.connect(ledger.path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(BudgetRefused, match="end the program that holds it"):
        set_caps(ledger, "d", Caps(Fraction(2)))
    connection.close()
    error = sqlite3.OperationalError("another text in another language")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    assert store._remedy(error).startswith("end the program")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    assert store._remedy(error).startswith("make room")
