"""Joining ledgers: all rows of one move to another, which replaces both from then on.

Digests cannot be made anew under another key, so the ledger keeps the keys of joined ledgers, and
new people are looked up under each (`identity`). Runs that were charged to the joined ledger go on:
it records the ledger with its rows (`store.ledger_at`).

Three steps, under the write lock of the ledger that stays, each durable before the next:

    the other ledger records its target, and is refused until the joining has ended
    its keys are added to the key of the one that stays
    its rows move there, in one transaction, which records their origin

If the process dies in between, the ledger is refused with the command that ends the joining: two
ledgers can never be charged at once. Joining again resumes from the step that was interrupted.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from ..runs.errors import BudgetRefused, InputRefused
from .caps import caps_of, enter_caps
from .store import (
    Ledger,
    add_keys,
    connect,
    has_joined,
    insert,
    is_joined,
    joining_ledger,
    ledger_at,
    open_ledger,
    read_key,
    reading,
    retire,
    writing,
)

_MOVED = (
    "inputs",
    "published",
    "draws",
    "conditions",
    "noise",
    "directories",
    "claims",
    "curves",
    "joined",
    "joined_runs",
)
"""Tables whose rows move unchanged."""


def join(path: Path, other_path: Path) -> Ledger:
    """Move all rows of the ledger at `other_path` into the one at `path`; returns the latter.

    Draws of one dataset in both add up; it keeps the smaller of its caps. Raises BudgetRefused if a
    ledger cannot be used, if one is a copy of the other, or if both have a run; InputRefused if
    they are one ledger, or were joined before.
    """
    ledger, other = open_ledger(path, must_exist=True), Ledger(Path(other_path).absolute())
    if not other.path.exists():
        raise InputRefused(f"{other.path}: there is no such ledger to join; correct the path.")
    if other.path.samefile(ledger.path):
        raise InputRefused(f"{other.path} is the ledger that it would be joined to; name another.")
    is_begun = is_joined(other)
    if is_begun:
        target, fingerprint = joining_ledger(other)
        if target.path != ledger.path:
            raise InputRefused(
                f"{other.path} was joined, or was being joined, to {target.path}; give that ledger "
                "as --ledger."
            )
        if has_joined(ledger, fingerprint):
            raise InputRefused(f"{other.path} was joined to {ledger.path} before; use that one.")
    else:
        other = open_ledger(other.path, must_exist=True)
    key = read_key(other.key_path)
    with writing(ledger) as connection:
        if not is_begun:
            _refuse_copies(ledger, other, connection)
            retire(other, ledger)
        add_keys(ledger.key_path, [key.key, *key.joined])
        with connect(other) as others:
            _move(others, connection)
            moved = [(run_id, key.fingerprint) for run_id in _values(others, "draws", "run_id")]
        connection.executemany("INSERT OR IGNORE INTO joined_runs VALUES (?, ?)", moved)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        insert(connection, "joined", [(key.fingerprint, str(other.path), now)])
    return ledger_at(other.path)


def _values(connection: sqlite3.Connection, table: str, column: str) -> set[str]:
    """All values of a column."""
    return {value for (value,) in connection.execute(f"SELECT DISTINCT {column} FROM {table}")}


def _refuse_copies(ledger: Ledger, other: Ledger, connection: sqlite3.Connection) -> None:
    """Raise BudgetRefused if the ledgers may have rows in common."""
    with reading(other) as others:
        runs = _values(others, "draws", "run_id") & _values(connection, "draws", "run_id")
    is_copy = ledger.keys().keys() & other.keys().keys()
    if is_copy or runs:
        raise BudgetRefused(
            f"the ledgers {ledger.path} and {other.path} have "
            f"{'a key' if is_copy else 'a run'} in common, so that one holds copies of the other's "
            "rows; keep the newer one, and no copy of it"
        )


def _move(others: sqlite3.Connection, connection: sqlite3.Connection) -> None:
    """Copy the rows of a retired ledger into the transaction of another."""
    known = _values(connection, "datasets", "name")
    for name in sorted(_values(others, "datasets", "name")):
        caps = caps_of(others, name)
        if name in known:
            caps = caps.smaller(caps_of(connection, name))
        enter_caps(connection, name, caps)
    in_both = _values(others, "draws", "dataset") & _values(connection, "draws", "dataset")
    for table in _MOVED:
        # A ledger that an older version has retired has fewer columns.
        found = others.execute(f"SELECT * FROM {table}")
        columns = [column for column, *_ in found.description]
        insert(connection, table, [tuple(row) for row in found], columns)
    # Between draws charged to two ledgers, it is unknown whether results were known.
    connection.executemany(
        "UPDATE draws SET after_results = 1 WHERE dataset = ?", [[name] for name in sorted(in_both)]
    )
