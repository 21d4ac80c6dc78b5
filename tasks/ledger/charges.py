"""Charging: draws and the people drawn from, entered before the draw, under the dataset's caps.

One row per draw is committed, durably, before the draw; the check against the dataset's caps
happens in the same transaction, so runs started together cannot both pass them. A row is never
removed: if a run dies between its row and its publication the charge remains, and resuming that run
uses it.

A draw is charged with the files that decide it (`charged_files`: settings, spine, plan), the
confidential files that it measures (`truth`, by keyed digests), and every noise parameter that it
will use (`Measure`). They are entered once and never changed.

Everything drawn from the same people adds up under one dataset name. Inputs are recognised by
keyed digests (`digests`): a digest known under another name is refused.

Rows keep the native guarantee, and the privacy curve of the draw where it is known.
`spending` composes them, and `caps` limits them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction

from ..runs.errors import BudgetRefused
from .accounting import BOUNDED, ONE_OF_SEVERAL
from .caps import check_caps
from .plan import UniversePlan
from .recognition import ENOUGH_WEAK, InputDigest
from .spending import SpentDraw, curve_text
from .store import Ledger, holds, reading, writing

OF_GUARANTEE = ("definition", "parameter", "neighbors", "delta", "bounded_factor", "bounded_rho")
"""Columns of a draw with the names of fields of `Guarantee`."""


def charge(
    ledger: Ledger,
    *,
    dataset: str,
    product: str,
    run_id: str,
    draws: Sequence[UniversePlan],
    inputs: Mapping[str, InputDigest],
    charged_files: Mapping[str, str] | None = None,
    truth: Mapping[str, str] | None = None,
    identity: str = "",
    folder: str | None = None,
    must_be_charged: bool = False,
    further_inputs: Iterable[InputDigest] = (),
) -> bool:
    """Record the draws of a run before they are made; all of them, or none.

    `inputs` are the digests of the people drawn from, by kind, and `further_inputs` the digests
    under keys of joined ledgers; `charged_files` are the digests of the files
    that decide the draws, by name, and `truth` the keyed ones of the confidential files that are
    measured; `identity` belongs to the run's directory, which alone may draw from now on, and
    `folder` is its location, for people. A draw that this run has been charged for is not charged
    again; fields that an older version did not charge are entered now. Returns whether
    anything was charged.

    Raises BudgetRefused if a cap of the dataset would be passed; if an input is known under
    another dataset's name; if the run was charged before for the same draws with other
    parameters, inputs, charged files or dataset; if `must_be_charged`, by the run's own record, and
    it was not; or if the ledger cannot be used.
    """
    digests = {kind: digest.whole for kind, digest in sorted(inputs.items())}
    with writing(ledger) as connection:
        rows = {draw.universe: _row(dataset, product, run_id, draw, digests) for draw in draws}
        own = connection.execute("SELECT * FROM draws WHERE run_id = ?", [run_id]).fetchall()
        known = {row["name"]: dict(row) for row in own}
        for name in sorted(rows.keys() & known.keys()):
            _check_same_charge(rows[name], known[name])
        new = [row for name, row in rows.items() if name not in known]
        if new and must_be_charged:
            raise BudgetRefused(
                f"run {run_id} was charged, but the ledger {ledger.path} does not hold the "
                "charge; restore the ledger that it was charged to"
            )
        if new:
            connection.execute("INSERT OR IGNORE INTO datasets (name) VALUES (?)", [dataset])
            _enter_inputs(connection, dataset, [*inputs.values(), *further_inputs])
            after_results = _has_results(connection, dataset)
            asked = [draw for draw in draws if draw.universe not in known]
            spent = [SpentDraw(draw.promised, draw.curve, after_results) for draw in asked]
            check_caps(connection, dataset, spent)
            new = [{**row, "after_results": int(after_results)} for row in new]
            columns = ", ".join(new[0])
            marks = ", ".join(f":{column}" for column in new[0])
            connection.executemany(f"INSERT INTO draws ({columns}) VALUES ({marks})", new)
        _enter_charged_files(connection, run_id, charged_files or {})
        _enter_truth(connection, run_id, truth or {})
        for draw in draws:
            _enter_terms(connection, run_id, draw)
            _enter_curve(connection, run_id, draw)
        if new and identity:
            connection.execute(
                "INSERT OR IGNORE INTO directories (run_id, identity) VALUES (?, ?)",
                [run_id, identity],
            )
        if folder is not None:
            connection.execute(
                "UPDATE directories SET folder = ? WHERE run_id = ? AND identity = ? "
                "AND folder IS NOT ?",
                [folder, run_id, identity, folder],
            )
    return bool(new)


def _has_results(connection: sqlite3.Connection, dataset: str) -> bool:
    """Whether something that was drawn from a dataset has been published."""
    query = "SELECT 1 FROM draws JOIN published USING (run_id) WHERE dataset = ? LIMIT 1"
    return holds(connection, query, [dataset])


def is_charged(ledger: Ledger, run_id: str) -> bool:
    """Whether the ledger holds a draw of this run."""
    with reading(ledger) as connection:
        return holds_draws(connection, run_id)


def holds_draws(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether there is a draw of this run."""
    return holds(connection, "SELECT 1 FROM draws WHERE run_id = ? LIMIT 1", [run_id])


def _row(
    dataset: str, product: str, run_id: str, draw: UniversePlan, digests: Mapping[str, str]
) -> dict[str, str | int | None]:
    return {
        "run_id": run_id,
        "name": draw.universe,
        "dataset": dataset,
        "product": product,
        "mechanism": draw.mechanism,
        **{column: str(getattr(draw.promised, column)) for column in OF_GUARANTEE},
        "stated_factor": _text(draw.promised.stated_factor),
        "inputs": json.dumps(digests),
        "charged_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "n_values": draw.n_answers,
    }


def _text(number: Fraction | None) -> str | None:
    return None if number is None else str(number)


def _check_same_charge(asked: Mapping, known: Mapping) -> None:
    """Raise BudgetRefused unless a requested draw equals the charged one.

    An earlier version did not enter the stated factor.
    """
    unstated = {"neighbors", "bounded_factor"}
    is_stated_now = asked["neighbors"] == ONE_OF_SEVERAL and known["neighbors"] == BOUNDED
    differing = sorted(
        column
        for column in asked
        if column != "charged_at"
        and asked[column] != known[column]
        and not (column in ("n_values", "stated_factor") and known[column] is None)
        and not (is_stated_now and column in unstated)
    )
    if differing:
        raise BudgetRefused(
            f"run {known['run_id']} was charged for draw {known['name']!r} with another "
            f"{', '.join(differing)}; resume it as it was, or start a new run"
        )


def _enter_inputs(
    connection: sqlite3.Connection, dataset: str, inputs: Iterable[InputDigest]
) -> None:
    inputs = list(inputs)
    known = sorted(datasets_of(connection, inputs))
    if len(known) > 1:
        raise BudgetRefused(
            f"the input of dataset {dataset!r} holds people that the ledger knows as several "
            f"datasets, {', '.join(map(repr, known))}, which cannot be charged as one; leave out "
            "the areas of all but one"
        )
    if known and known != [dataset]:
        raise BudgetRefused(
            f"the input of dataset {dataset!r} holds people that the ledger knows as dataset "
            f'{known[0]!r}; set [privacy] dataset = "{known[0]}"'
        )
    digests = {
        digest for item in inputs for digest in (item.whole, *item.parts, *item.weak, *item.filling)
    }
    connection.executemany(
        "INSERT OR IGNORE INTO inputs (digest, dataset) VALUES (?, ?)",
        [(digest, dataset) for digest in sorted(digests)],
    )


def datasets_of(connection: sqlite3.Connection, inputs: Iterable[InputDigest]) -> set[str]:
    """The datasets under which a ledger knows people of these inputs."""
    found: set[str] = set()
    for item in inputs:
        found |= _known(connection, (item.whole, *item.parts)).keys()
        weak = _known(connection, item.weak)
        found |= {dataset for dataset, n in weak.items() if n >= ENOUGH_WEAK}
    return found


def _known(connection: sqlite3.Connection, digests: Sequence[str]) -> dict[str, int]:
    """Numbers of known digests among some distinct ones, by dataset; without zeros."""
    rows = connection.execute(
        "SELECT dataset, count(*) FROM inputs WHERE digest IN (SELECT value FROM json_each(?)) "
        "GROUP BY dataset",
        [json.dumps(digests)],
    )
    return dict(rows.fetchall())


def _enter_charged_files(
    connection: sqlite3.Connection, run_id: str, charged_files: Mapping[str, str]
) -> None:
    """Enter the files that decide a run's draws, or compare them with those entered before."""
    known = charged_files_of_run(connection, run_id) or _enter_digests(
        connection, run_id, charged_files
    )
    differing = sorted({name for name, _ in known.items() ^ charged_files.items()})
    if differing:
        raise BudgetRefused(
            f"run {run_id} was charged with another {', '.join(differing)}; put the charged one "
            "back, or start a new run"
        )


def _enter_truth(connection: sqlite3.Connection, run_id: str, truth: Mapping[str, str]) -> None:
    """Enter the confidential files that a run measures, or compare them with the entered ones."""
    known = truth_of_run(connection, run_id) or _enter_digests(connection, run_id, truth)
    for name, digest in sorted(truth.items()):
        if known.get(name) != digest:
            raise BudgetRefused(other_people(run_id, name))


def _enter_digests(
    connection: sqlite3.Connection, run_id: str, digests: Mapping[str, str]
) -> Mapping[str, str]:
    """Enter the first digests of a run's files."""
    connection.executemany(
        "INSERT INTO conditions VALUES (?, ?, ?)",
        [(run_id, name, digest) for name, digest in sorted(digests.items())],
    )
    return digests


def other_people(run_id: str, name: str) -> str:
    """Message: a confidential file that is measured is not the one the run was charged for."""
    return (
        f"{name} is not the file that run {run_id} was charged for; put that file back, or start a "
        "new run, since other people would be measured under this charge"
    )


def charged_files_of_run(connection: sqlite3.Connection, run_id: str) -> dict[str, str]:
    """Digests of the public files that a run was charged with, by name."""
    return _digests_of_run(connection, run_id, "NOT LIKE")


def truth_of_run(connection: sqlite3.Connection, run_id: str) -> dict[str, str]:
    """Keyed digests of the confidential files that a run was charged for, by name."""
    return _digests_of_run(connection, run_id, "LIKE")


def _digests_of_run(connection: sqlite3.Connection, run_id: str, how: str) -> dict[str, str]:
    rows = connection.execute(
        f"SELECT name, digest FROM conditions WHERE run_id = ? AND name {how} 'confidential/%'",
        [run_id],
    )
    return dict(rows.fetchall())


def _enter_terms(connection: sqlite3.Connection, run_id: str, draw: UniversePlan) -> None:
    """Enter the noise parameters of a draw, or compare them with those entered before."""
    key = [run_id, draw.universe]
    rows = {(part, noise.mechanism, str(noise.parameter)) for part, noise in draw.noises}
    known = {
        tuple(row)
        for row in connection.execute(
            "SELECT part, mechanism, parameter FROM noise WHERE run_id = ? AND draw = ?", key
        )
    }
    if not known:
        connection.executemany(
            "INSERT INTO noise VALUES (?, ?, ?, ?, ?)", [(*key, *row) for row in sorted(rows)]
        )
        connection.execute(
            "UPDATE draws SET n_values = ? WHERE run_id = ? AND name = ? AND n_values IS NULL",
            [draw.n_answers, *key],
        )
    elif known != rows:
        part = min(known ^ rows)[0]
        raise BudgetRefused(
            f"run {run_id} was charged for draw {draw.universe!r} with other noise at {part}; "
            "resume it as it was, or start a new run"
        )


def _enter_curve(connection: sqlite3.Connection, run_id: str, draw: UniversePlan) -> None:
    """Enter the curve of a draw, once; it follows from the noise, which is compared."""
    if draw.curve is not None:
        connection.execute(
            "INSERT OR IGNORE INTO curves VALUES (?, ?, ?)",
            [run_id, draw.universe, curve_text(draw.curve)],
        )
