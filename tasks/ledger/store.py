"""The ledger's file and its key: creation, opening, locking, comparison and migration.

Digests are made under the key. The key file, of mode 0600, is next to the ledger and also holds
the mark of the ledger's last state. It is one line: the key and, once the ledger has been written
to, the word `used`, the number of the last state that was acted upon, and that state's identity:

    <64 hexadecimal digits> used 12 5b0c...

The keys of ledgers joined to it follow, since their digests cannot be made anew:

    joined <64 hexadecimal digits>

Files of version 0.1.0 have no number; they count as state 0.

A ledger is an SQLite file outside run directories. It holds `charges` (what was drawn, and under
which caps) and `charging` (the directory that draws each file).

**Rollback.** Every transaction that changes a ledger gives it a new state: a number, a random
identity, and the identity of the state before. Only after it is durable does the mark in the
key file follow, and only after that does the caller act. So the mark is at the ledger's state, or
one behind it if a process died between the two: then nothing was drawn under the last
transaction, and the next one sets the mark. A ledger behind the mark, or with another history, is
an older or another copy and is refused. Marks are written under the ledger's write lock.

**Versions.** `PRAGMA user_version` numbers the layout. Older ledgers are migrated when they are
opened, in one transaction; newer ones are refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..runs.errors import BudgetRefused
from ..runs.files import TEMPORARY_SUFFIX, locked, replacing

KEY_BYTES = 32
USED, JOINED = "used", "joined "
"""Words in the key file: for a ledger that may hold charges, and before the key of a joined one."""


@dataclass(frozen=True)
class Mark:
    """A state of a ledger: how many transactions have changed it, and the identity of the last."""

    sequence: int = 0
    state: str = ""


@dataclass(frozen=True)
class LedgerKey:
    """A ledger's key, whether the ledger may hold charges, the last state acted upon, and the keys
    of joined ledgers.
    """

    key: bytes
    is_used: bool
    mark: Mark
    joined: tuple[bytes, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key, by which a ledger recognises its key file."""
        return fingerprint_of(self.key)


def fingerprint_of(key: bytes) -> str:
    """Fingerprint of a key, which does not reveal it."""
    return hmac.new(key, b"ledger key fingerprint", hashlib.sha256).hexdigest()


def read_key(path: Path) -> LedgerKey:
    """Read a key file; raises BudgetRefused if it is missing, damaged, or open to others."""
    what = f"the ledger's key {path}"
    try:
        refuse_others(path, what, 0o077, "chmod it to 0600")
        first, *further = path.read_text(encoding="ascii").splitlines() or [""]
        words = first.split()
        key, used, number, state = [*words, *["", "", "0", ""][len(words) :]]
        joined = tuple(bytes.fromhex(line.removeprefix(JOINED)) for line in further)
        found = LedgerKey(bytes.fromhex(key), used == USED, Mark(int(number), state), joined)
    except (OSError, ValueError) as error:
        raise BudgetRefused(f"{what} cannot be read; restore it from a backup") from error
    if any(len(key) != KEY_BYTES for key in (found.key, *found.joined)):
        raise BudgetRefused(f"{what} is damaged; restore it from a backup")
    return found


def refuse_others(place: Path, what: str, mode: int, remedy: str) -> None:
    """Raise BudgetRefused for a file or folder of another user, or with some bits of a mode."""
    status = place.stat()
    if status.st_uid != os.geteuid():
        raise BudgetRefused(f"{what} belongs to another user; run as its owner, or chown it")
    if status.st_mode & mode:
        how = "written" if status.st_mode & 0o022 else "read"
        raise BudgetRefused(f"{what} can be {how} by other users; {remedy}")


def write_mark(path: Path, mark: Mark) -> None:
    """Set the mark, durably; the caller holds the ledger's write lock."""
    _write_key(path, replace(read_key(path), is_used=True, mark=mark))


def add_keys(path: Path, keys: Iterable[bytes]) -> None:
    """Keep the keys of joined ledgers, durably; as `write_mark`."""
    found = read_key(path)
    joined = tuple(dict.fromkeys([*found.joined, *keys]))
    _write_key(path, replace(found, is_used=True, joined=joined))


def _write_key(path: Path, key: LedgerKey) -> None:
    """Replace a key file atomically, and remove leftovers of killed writers; one writer at once."""
    used = f" {USED} {key.mark.sequence} {key.mark.state}" if key.is_used else ""
    lines = [f"{key.key.hex()}{used}", *(f"{JOINED}{each.hex()}" for each in key.joined)]
    for leftover in path.parent.glob(f"{path.name}.*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)
    with replacing(path) as part:
        part.touch(mode=0o600)
        part.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


APPLICATION_ID, JOINED_ID = 0x73706C67, 0x73706C6A
"""Application ids of a ledger, and of one joined to another."""
_APPLICATION_ID_AT = 68
"""Offset of the application id in an SQLite file."""
BUSY_SECONDS = 120

_LAYOUTS = tuple(
    path.read_text(encoding="utf-8")
    for path in sorted(Path(__file__).parent.glob("layouts/*.sql"), key=lambda path: int(path.stem))
)
"""SQL of each layout, as a change of the layout before it; the last is this version's."""

LAYOUT = len(_LAYOUTS)

_RESTORE = "restore it from a backup, or make it writable if its permissions changed"


class Damaged(Exception):
    """A ledger has contents that no version of the program writes; the text names them."""


@dataclass(frozen=True)
class Ledger:
    """A ledger's file; safe to share between threads and processes, as each use connects anew."""

    path: Path

    @property
    def key_path(self) -> Path:
        """The file with the key of the input digests, and the mark."""
        return Path(f"{self.path}.key")

    def key(self) -> bytes:
        """The key of the input digests; raises BudgetRefused if its file cannot be used."""
        return read_key(self.key_path).key

    def keys(self) -> dict[str, bytes]:
        """All keys of digests of people in it, its own first, by fingerprint."""
        found = read_key(self.key_path)
        return {fingerprint_of(key): key for key in (found.key, *found.joined)}

    def key_of_run(self, run_id: str) -> bytes:
        """The key of the digests of a run's files, from the ledger that the run was charged to."""
        keys = self.keys()
        if len(keys) > 1:
            query = "SELECT key_fingerprint FROM joined_runs WHERE run_id = ?"
            with reading(self) as connection:
                return keys[value_of(connection, query, run_id) or next(iter(keys))]
        return self.key()


def ledger_at(path: Path) -> Ledger:
    """The ledger at a path, not checked yet: each use of it is.

    For a ledger joined to another it is the other. Raises BudgetRefused if that is missing, or if
    the joining was interrupted.
    """
    refuse_unreachable(path)
    ledger = Ledger(Path(path).absolute())
    seen = {ledger.path}
    while is_joined(ledger):
        target, fingerprint = joining_ledger(ledger)
        if not target.path.exists():
            raise BudgetRefused(
                f"the ledger {ledger.path} was joined to {target.path}, which is missing; restore "
                "that one"
            )
        if target.path in seen:
            raise BudgetRefused(f"the ledger {ledger.path} was joined to itself; {_RESTORE}")
        if not is_joined(target) and not has_joined(target, fingerprint):
            raise BudgetRefused(
                f"the ledger {ledger.path} was being joined to {target.path} when that was "
                f"interrupted; finish it with 'spineflow ledger join {ledger.path} --ledger "
                f"{target.path}'"
            )
        seen.add(target.path)
        ledger = target
    return ledger


def refuse_unreachable(path: Path) -> None:
    """Raise BudgetRefused if a path cannot be checked for a ledger."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise BudgetRefused(
            f"the ledger {path} cannot be reached ({error.strerror}); see that its folder can be "
            "entered by the account that runs this"
        ) from None


def is_joined(ledger: Ledger) -> bool:
    """Whether the header of a file marks it as joined to another ledger."""
    try:
        with ledger.path.open("rb") as file:
            file.seek(_APPLICATION_ID_AT)
            return file.read(4) == JOINED_ID.to_bytes(4, "big")
    except OSError:
        return False


def joining_ledger(ledger: Ledger) -> tuple[Ledger, str]:
    """The ledger that this one was joined to, and the fingerprint of this one's key."""
    with connect(ledger) as connection:
        rows = connection.execute("SELECT path, key_fingerprint FROM joined_to").fetchall()
        if len(rows) != 1:
            raise Damaged("it does not name the ledger that it was joined to")
        return Ledger(Path(rows[0]["path"])), rows[0]["key_fingerprint"]


def has_joined(ledger: Ledger, fingerprint: str) -> bool:
    """Whether a ledger has taken over the rows of the one whose key has this fingerprint."""
    with reading(ledger) as connection:
        query = "SELECT 1 FROM joined WHERE key_fingerprint = ?"
        return value_of(connection, query, fingerprint) is not None


def retire(ledger: Ledger, target: Ledger) -> None:
    """Mark a ledger as joined to another and closed to charges."""
    with connect(ledger) as connection:
        connection.execute("BEGIN IMMEDIATE")
        found = _agree(ledger, connection)
        fingerprint = read_key(ledger.key_path).fingerprint
        connection.execute("INSERT INTO joined_to VALUES (?, ?)", [str(target.path), fingerprint])
        _next_state(connection, found)
        connection.execute(f"PRAGMA application_id = {JOINED_ID}")
        connection.execute("COMMIT")


def open_ledger(path: Path, *, must_exist: bool = False) -> Ledger:
    """Open the ledger at `path`, check the whole of it, and migrate it to this version.

    If neither it nor its key exists it is made, unless `must_exist`. Its folder must exist.
    Raises BudgetRefused if the ledger or its key is missing after use, damaged, of another kind,
    older than its key's mark, or cannot be read or written.
    """
    ledger = ledger_at(path)
    try:
        # One process makes the ledger.
        with locked(os.open(ledger.path.parent, os.O_RDONLY)):
            for leftover in ledger.path.parent.glob(
                f"{ledger.path.name}.????????{TEMPORARY_SUFFIX}"
            ):
                leftover.unlink(missing_ok=True)
            # A key without the mark belongs to a ledger whose creation was interrupted.
            is_used = ledger.key_path.exists() and read_key(ledger.key_path).is_used
            if not (must_exist or is_used or ledger.path.exists()):
                _refuse_writable_by_others(ledger)
                _create(ledger)
    except OSError as error:
        raise BudgetRefused(
            f"the ledger {ledger.path} cannot be made or opened ({error.strerror}); "
            "set [privacy] ledger to a file in a folder that exists and can be written"
        ) from error
    if not ledger.path.exists():
        raise BudgetRefused(
            f"the ledger {ledger.path} was used before and is missing; restore it from a backup"
            if is_used
            else f"the ledger {ledger.path} is missing; make it with 'spineflow ledger init "
            f"--ledger {ledger.path}', or restore it if it was used before"
        )
    with connect(ledger) as connection:
        if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
            raise Damaged("the file fails its integrity check")
        layout = _layout(connection)
        with closing(sqlite3.connect(":memory:")) as like_new:
            like_new.executescript("".join(_LAYOUTS[:layout]))
            if _schema(connection) != _schema(like_new):
                raise Damaged(f"its tables differ from layout {layout}")
    with reading(ledger):
        return ledger


def value_of(connection: sqlite3.Connection, query: str, *values: str) -> Any:
    """The first column of the first row of a query; None without rows."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def insert(
    connection: sqlite3.Connection,
    table: str,
    rows: Sequence[Sequence[object]],
    columns: Iterable[str] = (),
) -> None:
    """Insert rows of a table, of all of its columns or of some."""
    if rows:
        names = f"({', '.join(columns)})" if columns else ""
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} {names} VALUES ({marks})", rows)


@contextmanager
def writing(ledger: Ledger) -> Iterator[sqlite3.Connection]:
    """A transaction that has the ledger's write lock from its beginning.

    If it ends without an error it is durable and the key's mark is at its state; otherwise it
    leaves no trace. SQLite's errors about the file become BudgetRefused; errors of the block pass
    unchanged.
    """
    with connect(ledger) as connection:
        connection.execute("BEGIN IMMEDIATE")
        before = connection.total_changes
        found = _agree(ledger, connection)
        yield connection
        if connection.total_changes == before:
            connection.execute("ROLLBACK")
            return
        _next_state(connection, found)
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        _agree(ledger, connection)
        connection.execute("ROLLBACK")


def _next_state(connection: sqlite3.Connection, found: Mark) -> None:
    connection.execute(
        "UPDATE ledger SET sequence = ?, state = ?, state_before = ?",
        [found.sequence + 1, secrets.token_hex(16), found.state],
    )


@contextmanager
def reading(ledger: Ledger) -> Iterator[sqlite3.Connection]:
    """A transaction that changes nothing; raises as `writing`."""
    with connect(ledger) as connection:
        connection.execute("BEGIN")
        if _layout(connection) < LAYOUT:
            connection.execute("ROLLBACK")
            with writing(ledger):
                pass
            connection.execute("BEGIN")
        _compare(ledger, connection, read_key(ledger.key_path))
        yield connection
        connection.execute("ROLLBACK")


@contextmanager
def connect(ledger: Ledger) -> Iterator[sqlite3.Connection]:
    """A connection to a ledger's file; SQLite's errors become BudgetRefused with a remedy."""
    connection = None
    try:
        _refuse_writable_by_others(ledger)
        connection = sqlite3.connect(
            f"{ledger.path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        connection.row_factory = sqlite3.Row
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        connection.execute("PRAGMA synchronous = EXTRA")
        yield connection
    except (Damaged, UnicodeDecodeError, sqlite3.Error) as error:
        remedy = _remedy(error) if isinstance(error, sqlite3.Error) else _RESTORE
        if remedy is None:
            raise
        what = "its schema is no text" if isinstance(error, UnicodeDecodeError) else error
        raise BudgetRefused(
            f"the ledger {ledger.path} cannot be used ({what}); {remedy}"
        ) from error
    finally:
        if connection is not None:
            connection.close()


def _remedy(error: sqlite3.Error) -> str | None:
    """The remedy for an error of SQLite; None for an error of the program."""
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "end the program that holds it, and run the command again"
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM:
            return "make room on its disk and see that it works, then run the command again"
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_CONSTRAINT | sqlite3.SQLITE_MISUSE:
            return None
    return _RESTORE


def _refuse_writable_by_others(ledger: Ledger) -> None:
    """Raise BudgetRefused for a ledger that another user can write, or put another in place of."""
    folder = ledger.path.parent
    # A sticky bit is no help: any user who can write there can add a journal for the ledger.
    with suppress(OSError):  # SQLite reports the fault.
        remedy = "see that the ledger is yours, and chmod go-w the folder"
        refuse_others(folder, f"the folder {folder} of the ledger", 0o022, remedy)
        remedy = "check its contents, and chmod it to 0600"
        refuse_others(ledger.path, f"the ledger {ledger.path}", 0o022, remedy)


def _agree(ledger: Ledger, connection: sqlite3.Connection) -> Mark:
    """Compare a ledger with its key, migrate it to this layout, and set a mark that lags; returns
    the ledger's state. The connection has the write lock.
    """
    key = read_key(ledger.key_path)
    _migrate(connection)
    found = _compare(ledger, connection, key)
    if found != key.mark:
        write_mark(ledger.key_path, found)
    return found


def _compare(ledger: Ledger, connection: sqlite3.Connection, key: LedgerKey) -> Mark:
    """The state of a ledger; raises BudgetRefused if the key's mark disagrees.

    One state ahead of the mark is accepted: a process died before it acted.
    """
    columns = "key_fingerprint, sequence, state, state_before"
    rows = connection.execute(f"SELECT {columns} FROM ledger").fetchall()
    if [row["key_fingerprint"] for row in rows] != [key.fingerprint]:
        raise Damaged(f"its key {ledger.key_path} belongs to another ledger")
    _, sequence, state, before = rows[0]
    if not isinstance(sequence, int):
        raise Damaged("its state number is not an integer")
    if key.mark not in (Mark(sequence, state), Mark(sequence - 1, before)):
        raise BudgetRefused(
            f"the ledger {ledger.path} is not the one that was used last: it lags behind the mark "
            f"in {ledger.key_path.name}, or has another history; put back the newest copy of the "
            "ledger, since charges that an older one lacks would be spent again"
        )
    return Mark(sequence, state)


def _layout(connection: sqlite3.Connection) -> int:
    """The number of a ledger's layout; raises Damaged for another kind of file."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    layout = connection.execute("PRAGMA user_version").fetchone()[0]
    if application_id == JOINED_ID:
        raise BudgetRefused("the ledger was joined to another meanwhile; run the command again")
    if application_id != APPLICATION_ID or layout < 1:
        raise Damaged("the file is not a ledger")
    if layout > LAYOUT:
        raise BudgetRefused(
            f"the ledger was written by a newer version of Spineflow (layout {layout}; this "
            f"version knows {LAYOUT}); use that version or a later one"
        )
    return layout


def _schema(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    """The schema of a database: tables, indices, triggers, views, and the tables' columns.

    Tables of `ANALYZE` are left out.
    """
    made = "SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"
    columns = (
        f"SELECT made.name, columns.* FROM ({made}) AS made,"
        " pragma_table_info(made.name) AS columns WHERE made.type = 'table'"
    )
    return {tuple(row) for query in (made, columns) for row in connection.execute(query)}


def _migrate(connection: sqlite3.Connection) -> None:
    """Apply later layouts inside a transaction; counts as a change of state."""
    layout = _layout(connection)
    if layout < LAYOUT:
        for statement in "".join(_LAYOUTS[layout:]).split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
        connection.execute("UPDATE ledger SET sequence = sequence")


def _create(ledger: Ledger) -> None:
    """Make a ledger and its key; the ledger appears whole, the key first."""
    if not ledger.key_path.exists():
        new = LedgerKey(secrets.token_bytes(KEY_BYTES), is_used=False, mark=Mark())
        _write_key(ledger.key_path, new)
    fingerprint = read_key(ledger.key_path).fingerprint
    with replacing(ledger.path) as part:
        part.touch(mode=0o600)
        with closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.executescript("".join(_LAYOUTS))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
            connection.execute("INSERT INTO ledger (key_fingerprint) VALUES (?)", [fingerprint])
