"""The privacy-loss ledger: what every dataset has spent, and the cap that stops it.

A ledger is an SQLite file outside run directories. One row per draw is committed, durably, before
the draw; the check against the dataset's cap happens in the same transaction, so runs started
together cannot both pass it. A row is never removed: if a run dies between its row and its
publication the charge stands, and resuming that run uses it.

Everything drawn from the same people adds up under one dataset name. Inputs are recognised by
keyed digests (`digests`), under a key in `<ledger>.key`, mode 0600: a digest known under another
name is refused. The key also tells that a ledger has existed: a key without its ledger, or a
ledger without its key, stops a run.

Rows keep the native guarantee. Spending is compared with the cap as bounded zCDP per person
(`accounting.Guarantee.bounded_rho`); the cap is raised by `set_cap` alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from spineflow.tasks.ledger.accounting import (
    Guarantee,
    compose,
    epsilon_simple,
    epsilon_tight,
)
from spineflow.tasks.ledger.digests import InputDigest
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused
from spineflow.tasks.runs.files import TEMPORARY_SUFFIX, replacing, sync
from spineflow.tasks.runs.publishing import UNPUBLISHED_SUFFIX

APPLICATION_ID = 0x73706C67
SCHEMA_VERSION = 1
BUSY_SECONDS = 120
KEY_BYTES = 32
USED = "used"
"""Mark in the key file of a ledger that may hold charges."""
REPORT_DELTA = Fraction(1, 10**10)
"""Delta at which `summary` shows the epsilon of what was spent."""

_SCHEMA = """
CREATE TABLE ledger (key_fingerprint TEXT NOT NULL);
CREATE TABLE datasets (
    name TEXT PRIMARY KEY,
    cap TEXT                  -- bounded zCDP rho as p/q; null: none set
);
CREATE TABLE inputs (
    digest TEXT PRIMARY KEY,
    dataset TEXT NOT NULL REFERENCES datasets (name)
);
CREATE TABLE published (
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);
CREATE TABLE draws (
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    dataset TEXT NOT NULL REFERENCES datasets (name),
    product TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    definition TEXT NOT NULL,
    parameter TEXT NOT NULL,
    neighbors TEXT NOT NULL,
    delta TEXT NOT NULL,
    bounded_factor TEXT NOT NULL,
    bounded_rho TEXT NOT NULL,
    inputs TEXT NOT NULL,
    charged_at TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);
"""


@dataclass(frozen=True)
class Draw:
    """One draw to be charged: its name within the run (a universe, a stage), and its guarantee."""

    name: str
    mechanism: str
    guarantee: Guarantee


@dataclass(frozen=True)
class Ledger:
    """An open ledger; safe to share between threads and processes, as each use connects anew."""

    path: Path

    @property
    def key_path(self) -> Path:
        """The file with the key of the input digests."""
        return Path(f"{self.path}.key")

    def key(self) -> bytes:
        """The key of the input digests.

        Raises BudgetRefused if its file is missing, damaged or open to others.
        """
        try:
            mode = self.key_path.stat().st_mode
            key = bytes.fromhex(self.key_path.read_text().split()[0])
        except (OSError, ValueError, IndexError) as error:
            raise BudgetRefused(
                f"the ledger's key {self.key_path} cannot be read; restore it from a backup"
            ) from error
        if mode & 0o077:
            raise BudgetRefused(
                f"the ledger's key {self.key_path} is open to other users; chmod it to 0600"
            )
        if len(key) != KEY_BYTES:
            raise BudgetRefused(
                f"the ledger's key {self.key_path} is damaged; restore it from a backup"
            )
        return key


def open_ledger(path: Path, *, must_exist: bool = False) -> Ledger:
    """Open the ledger at `path` and check it; make it, with its key, if neither exists.

    With `must_exist`, as when a run says that it was charged, a missing ledger is not made.
    Raises BudgetRefused if the ledger or its key is missing after use, damaged, of another kind,
    or cannot be read or written.
    """
    ledger = Ledger(Path(path).absolute())
    try:
        if not must_exist:
            ledger.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked_folder(ledger.path.parent):
            _discard_unfinished(ledger)
            if not must_exist and not ledger.path.exists() and not _is_used(ledger):
                _create(ledger)
    except OSError as error:
        raise BudgetRefused(
            f"the ledger {ledger.path} cannot be made or opened ({error.strerror}); "
            "set [privacy] ledger to a file in a folder that exists and can be written"
        ) from error
    if not ledger.path.exists():
        raise BudgetRefused(
            f"the ledger {ledger.path} was used before and is missing; restore it from a backup"
        )
    with _transaction(ledger) as connection:
        _check_ledger(ledger, connection)
    return ledger


def charge(
    ledger: Ledger,
    *,
    dataset: str,
    product: str,
    run_id: str,
    draws: Sequence[Draw],
    inputs: Mapping[str, InputDigest],
    must_be_charged: bool = False,
) -> bool:
    """Record the draws of a run before they are made; all of them, or none.

    `inputs` are the digests of the people drawn from, by kind. A draw that this run has been
    charged for is not charged again. Returns whether anything was charged now.

    Raises BudgetRefused if the dataset's cap would be passed; if an input is known under another
    dataset's name; if the run was charged before for the same draws with other parameters, inputs
    or dataset; if `must_be_charged`, as when the run says so, and it was not; or if the ledger
    cannot be used.
    """
    digests = {kind: digest.whole for kind, digest in sorted(inputs.items())}
    _mark_used(ledger)
    with _transaction(ledger) as connection:
        rows = {draw.name: _row(dataset, product, run_id, draw, digests) for draw in draws}
        own = connection.execute("SELECT * FROM draws WHERE run_id = ?", [run_id]).fetchall()
        known = {row["name"]: dict(row) for row in own}
        for name in rows.keys() & known.keys():
            _check_same_charge(rows[name], known[name])
        new = [row for name, row in rows.items() if name not in known]
        if new and must_be_charged:
            raise BudgetRefused(
                f"run {run_id} was charged, but the ledger {ledger.path} does not hold the "
                "charge; restore the ledger that it was charged to"
            )
        if not new:
            return False
        connection.execute("INSERT OR IGNORE INTO datasets (name) VALUES (?)", [dataset])
        _claim_inputs(connection, dataset, inputs.values())
        _check_cap(connection, dataset, [_guarantee(row) for row in new])
        columns = ", ".join(new[0])
        marks = ", ".join(f":{column}" for column in new[0])
        connection.executemany(f"INSERT INTO draws ({columns}) VALUES ({marks})", new)
    return True


def record_publication(ledger: Ledger, run_id: str, name: str, digest: str) -> None:
    """Record that a run has published a noisy measurement, by name and digest of the file.

    Raises BudgetRefused if the run has published another file of this name: a copy of its
    directory went on elsewhere, or the file was altered.
    """
    with _transaction(ledger) as connection:
        known = connection.execute(
            "SELECT digest FROM published WHERE run_id = ? AND name = ?", [run_id, name]
        ).fetchone()
        if known is None:
            connection.execute("INSERT INTO published VALUES (?, ?, ?)", [run_id, name, digest])
        elif known["digest"] != digest:
            raise BudgetRefused(
                f"{name} is not the measurement that run {run_id} has published; restore that "
                "file, or start a new run"
            )


def refuse_redraw(ledger: Ledger, run_id: str, name: str) -> None:
    """Raise BudgetRefused if the run has published this measurement: it is not drawn again."""
    with _transaction(ledger) as connection:
        known = connection.execute(
            "SELECT 1 FROM published WHERE run_id = ? AND name = ?", [run_id, name]
        ).fetchone()
    if known is not None:
        raise BudgetRefused(
            f"{name} was published by run {run_id} and is missing; restore the file, or start a "
            "new run, since a published measurement is never drawn again"
        )


def set_cap(ledger: Ledger, dataset: str, cap: Fraction) -> None:
    """Set the cap of a dataset, in rho of bounded zCDP per person.

    Raises InputRefused for a cap that is not a positive fraction, BudgetRefused for one below
    what is already spent.
    """
    if isinstance(cap, bool) or not isinstance(cap, int | Fraction) or cap <= 0:
        raise InputRefused(f"the cap is {cap!r}; give a positive exact fraction such as 3/2")
    _mark_used(ledger)
    with _transaction(ledger) as connection:
        spent = compose(_guarantees(connection, dataset)).parameter
        if cap < spent:
            raise BudgetRefused(
                f"dataset {dataset!r} has spent rho {spent} (about {float(spent):.6g}); "
                f"a cap of {cap} is below that, so set it higher"
            )
        connection.execute(
            "INSERT INTO datasets (name, cap) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET cap = excluded.cap",
            [dataset, str(Fraction(cap))],
        )


def summary(ledger: Ledger) -> dict:
    """What every dataset has spent, by product, natively and composed; fractions as strings.

    `{"ledger", "datasets": {name: {"cap", "remaining", "rho", "delta", "epsilon": {"delta",
    "tight", "simple"}, "products": {product: {"rho", "delta", "draws": [...]}}}}}`, where `rho` is
    of bounded zCDP per person, and each draw has its native `definition`, `parameter`,
    `neighbors` and `delta`.
    """
    with _transaction(ledger) as connection:
        caps = dict(connection.execute("SELECT name, cap FROM datasets ORDER BY name").fetchall())
        rows = connection.execute("SELECT * FROM draws ORDER BY charged_at, name").fetchall()
    datasets = {}
    for name, cap in caps.items():
        own = [row for row in rows if row["dataset"] == name]
        spent = compose(_guarantee(row) for row in own)
        products = {
            product: _product_summary([row for row in own if row["product"] == product])
            for product in sorted({row["product"] for row in own})
        }
        datasets[name] = {
            "cap": cap,
            "remaining": None if cap is None else str(Fraction(cap) - spent.parameter),
            "rho": str(spent.parameter),
            "delta": str(spent.delta),
            "epsilon": {
                "delta": str(REPORT_DELTA),
                "tight": epsilon_tight(spent.parameter, REPORT_DELTA),
                "simple": epsilon_simple(spent.parameter, REPORT_DELTA),
            },
            "products": products,
        }
    return {"ledger": str(ledger.path), "datasets": datasets}


def _product_summary(rows: Sequence[sqlite3.Row]) -> dict:
    spent = compose(_guarantee(row) for row in rows)
    shown = (
        "run_id",
        "name",
        "mechanism",
        "definition",
        "parameter",
        "neighbors",
        "delta",
        "bounded_rho",
        "charged_at",
    )
    return {
        "rho": str(spent.parameter),
        "delta": str(spent.delta),
        "draws": [{column: row[column] for column in shown} for row in rows],
    }


def _row(
    dataset: str, product: str, run_id: str, draw: Draw, digests: Mapping[str, str]
) -> dict[str, str]:
    guarantee = draw.guarantee
    return {
        "run_id": run_id,
        "name": draw.name,
        "dataset": dataset,
        "product": product,
        "mechanism": draw.mechanism,
        "definition": guarantee.definition,
        "parameter": str(guarantee.parameter),
        "neighbors": guarantee.neighbors,
        "delta": str(guarantee.delta),
        "bounded_factor": str(guarantee.bounded_factor),
        "bounded_rho": str(guarantee.bounded_rho),
        "inputs": json.dumps(digests),
        "charged_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _guarantee(row: Mapping[str, str] | sqlite3.Row) -> Guarantee:
    """The native guarantee of a row; raises ValueError if the row contradicts itself."""
    guarantee = Guarantee(
        row["definition"],
        Fraction(row["parameter"]),
        row["neighbors"],
        Fraction(row["delta"]),
        Fraction(row["bounded_factor"]),
    )
    if guarantee.bounded_rho != Fraction(row["bounded_rho"]):
        raise ValueError(f"bounded rho of draw {row['name']!r} of run {row['run_id']}")
    return guarantee


def _guarantees(connection: sqlite3.Connection, dataset: str) -> list[Guarantee]:
    rows = connection.execute("SELECT * FROM draws WHERE dataset = ?", [dataset])
    return [_guarantee(row) for row in rows]


def _check_same_charge(asked: Mapping[str, str], known: Mapping[str, str]) -> None:
    differing = sorted(
        column for column in asked if column != "charged_at" and asked[column] != known[column]
    )
    if differing:
        raise BudgetRefused(
            f"run {known['run_id']} was charged for draw {known['name']!r} with another "
            f"{', '.join(differing)}; resume it as it was, or start a new run"
        )


def _claim_inputs(
    connection: sqlite3.Connection, dataset: str, inputs: Iterable[InputDigest]
) -> None:
    digests = {digest for item in inputs for digest in (item.whole, *item.parts)}
    for digest in sorted(digests):
        known = connection.execute(
            "SELECT dataset FROM inputs WHERE digest = ?", [digest]
        ).fetchone()
        if known is not None and known["dataset"] != dataset:
            raise BudgetRefused(
                f"the input of dataset {dataset!r} holds people that the ledger knows as dataset "
                f'{known["dataset"]!r}; set [privacy] dataset = "{known["dataset"]}"'
            )
    connection.executemany(
        "INSERT OR IGNORE INTO inputs (digest, dataset) VALUES (?, ?)",
        [(digest, dataset) for digest in sorted(digests)],
    )


def _check_cap(connection: sqlite3.Connection, dataset: str, asked: Iterable[Guarantee]) -> None:
    cap = connection.execute("SELECT cap FROM datasets WHERE name = ?", [dataset]).fetchone()["cap"]
    if cap is None:
        return
    spent = compose(_guarantees(connection, dataset)).parameter
    needed = compose(asked).parameter
    if spent + needed > Fraction(cap):
        raise BudgetRefused(
            f"dataset {dataset!r} has spent rho {float(spent):.6g} of its cap {cap}, and this run "
            f"needs {needed} (about {float(needed):.6g}); lower its rho, or raise the cap with "
            "`spineflow ledger set-cap`"
        )


def _create(ledger: Ledger) -> None:
    """Make a ledger and its key; the ledger appears whole, the key first."""
    if not ledger.key_path.exists():
        _write_key(ledger, secrets.token_hex(KEY_BYTES))
    key = ledger.key()
    unpublished = ledger.path.with_name(
        f".{ledger.path.name}.{secrets.token_hex(8)}{UNPUBLISHED_SUFFIX}"
    )
    connection = sqlite3.connect(unpublished, isolation_level=None)
    try:
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("INSERT INTO ledger VALUES (?)", [_fingerprint(key)])
    finally:
        connection.close()
    unpublished.chmod(0o600)
    os.rename(unpublished, ledger.path)
    sync(ledger.path.parent)


def _discard_unfinished(ledger: Ledger) -> None:
    """Remove what a process that died while it made a ledger left; the folder must be locked."""
    folder = ledger.path.parent
    for pattern in (
        f".{ledger.path.name}.*{UNPUBLISHED_SUFFIX}",
        f"{ledger.key_path.name}.*{TEMPORARY_SUFFIX}",
    ):
        for leftover in folder.glob(pattern):
            leftover.unlink(missing_ok=True)


def _write_key(ledger: Ledger, text: str) -> None:
    with replacing(ledger.key_path) as part:
        part.touch(mode=0o600)
        part.write_text(text + "\n")


def _is_used(ledger: Ledger) -> bool:
    """Whether the key says that the ledger may hold charges.

    A key without the mark is that of a ledger which was not made before its maker died.
    """
    return ledger.key_path.exists() and USED in ledger.key_path.read_text().split()


def _mark_used(ledger: Ledger) -> None:
    """Note beside the key that the ledger may hold charges from now on."""
    with _locked_folder(ledger.path.parent):
        if not _is_used(ledger):
            _write_key(ledger, f"{ledger.key().hex()} {USED}")


def _check_ledger(ledger: Ledger, connection: sqlite3.Connection) -> None:
    """Raise ValueError for a file that is damaged, or that is not the ledger of its key."""
    key = ledger.key()
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application_id, version) != (APPLICATION_ID, SCHEMA_VERSION):
        raise ValueError("the file is not a ledger of this version")
    if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
        raise ValueError("the file fails its integrity check")
    fingerprint = connection.execute("SELECT key_fingerprint FROM ledger").fetchone()[0]
    if not hmac.compare_digest(fingerprint, _fingerprint(key)):
        raise ValueError(f"its key {ledger.key_path} is that of another ledger")
    for row in connection.execute("SELECT * FROM draws"):
        _guarantee(row)


def _fingerprint(key: bytes) -> str:
    return hmac.new(key, b"ledger key fingerprint", hashlib.sha256).hexdigest()


@contextmanager
def _transaction(ledger: Ledger) -> Iterator[sqlite3.Connection]:
    """A transaction that holds the ledger's write lock from its beginning.

    It is durable when it ends without an error and leaves no trace when it ends with one. What
    SQLite or a malformed row raises becomes BudgetRefused.
    """
    connection = None
    try:
        connection = sqlite3.connect(
            f"{ledger.path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    except (sqlite3.Error, ValueError, ArithmeticError, TypeError) as error:
        if "database is locked" in str(error):
            remedy = "end the program that holds it, and run the command again"
        else:
            remedy = "restore it from a backup, or make it writable if its permissions changed"
        raise BudgetRefused(
            f"the ledger {ledger.path} cannot be used ({error}); {remedy}"
        ) from error
    finally:
        if connection is not None:
            connection.close()


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, so that one process makes the ledger."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
