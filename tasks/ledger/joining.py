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
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..runs.errors import BudgetRefused, InputRefused
from .caps import caps_of, enter_caps
from .store import (
    Ledger,
    add_keys,
    bring_up_retired,
    connected,
    has_joined,
    holds,
    is_joined,
    joined_to,
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
        target, fingerprint = joined_to(other)
        if target.path != ledger.path:
            raise InputRefused(
                f"{other.path} was joined, or was being joined, to {target.path}; give that ledger "
                "as --ledger."
            )
        if has_joined(ledger, fingerprint):
            raise InputRefused(f"{other.path} was joined to {ledger.path} before; use that one.")
        bring_up_retired(other)
    else:
        other = open_ledger(other.path, must_exist=True)
        fingerprint = read_key(other.key_path).fingerprint
    with writing(ledger) as connection:
        if not is_begun:
            _refuse_copies(ledger, other, connection)
            retire(other, ledger)
        key = read_key(other.key_path)
        add_keys(ledger.key_path, [key.key, *key.joined])
        with connected(other) as others:
            _move(others, connection)
            runs = others.execute("SELECT run_id FROM draws UNION SELECT run_id FROM conditions")
            connection.executemany(
                "INSERT OR IGNORE INTO joined_runs VALUES (?, ?)",
                [(row["run_id"], fingerprint) for row in runs],
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        connection.execute(
            "INSERT INTO joined VALUES (?, ?, ?)", [fingerprint, str(other.path), now]
        )
    return ledger_at(other.path)


def _holds(connection: sqlite3.Connection, table: str, column: str, values: Sequence[str]) -> bool:
    query = f"SELECT 1 FROM {table} WHERE {column} = ? LIMIT 1"
    return any(holds(connection, query, [value]) for value in values)


def _refuse_copies(ledger: Ledger, other: Ledger, connection: sqlite3.Connection) -> None:
    """Raise BudgetRefused if the ledgers may have rows in common."""
    with reading(other) as others:
        runs = [row["run_id"] for row in others.execute("SELECT DISTINCT run_id FROM draws")]
    is_copy = ledger.keys().keys() & other.keys().keys()
    if is_copy or _holds(connection, "draws", "run_id", runs):
        raise BudgetRefused(
            f"the ledgers {ledger.path} and {other.path} have "
            f"{'a key' if is_copy else 'a run'} in common, so that one holds copies of the other's "
            "rows; keep the newer one, and no copy of it"
        )


def _drawn(connection: sqlite3.Connection) -> set[str]:
    """The datasets with draws."""
    return {row["dataset"] for row in connection.execute("SELECT DISTINCT dataset FROM draws")}


def _move(others: sqlite3.Connection, connection: sqlite3.Connection) -> None:
    """Copy the rows of a retired ledger into the transaction of another."""
    for row in others.execute("SELECT name FROM datasets ORDER BY name").fetchall():
        name = row["name"]
        is_known = _holds(connection, "datasets", "name", [name])
        caps = caps_of(others, name)
        if is_known:
            caps = caps.smaller(caps_of(connection, name))
        enter_caps(connection, name, caps)
    in_both = _drawn(others) & _drawn(connection)
    for table in _MOVED:
        rows = others.execute(f"SELECT * FROM {table}").fetchall()
        if rows:
            columns = rows[0].keys()
            marks = ", ".join("?" * len(columns))
            query = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
            connection.executemany(query, [tuple(row) for row in rows])
    # Between draws charged to two ledgers, it is unknown whether results were known.
    connection.executemany(
        "UPDATE draws SET after_results = 1 WHERE dataset = ?", [[name] for name in sorted(in_both)]
    )
    connection.executemany(
        "INSERT INTO joined_runs VALUES (?, ?)",
        [tuple(row) for row in others.execute("SELECT * FROM joined_runs")],
    )
