"""Charging: draws and the people drawn from, entered before the draw, under the dataset's caps.

One row per draw is committed, durably, before the draw; the check against the dataset's caps
happens in the same transaction, so runs started together cannot both pass them. A row is never
removed: if a run dies between its row and its publication the charge remains, and resuming that run
uses it.

A draw is charged with the files that decide it (settings, spine, plan), the confidential files that
it measures (by keyed digests), and every noise parameter that it
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

from ..runs.errors import BudgetRefused
from .caps import check_caps
from .plan import UniversePlan
from .recognition import ENOUGH_WEAK, InputDigest
from .spending import SpentDraw, curve_text
from .store import Ledger, insert, value_of, writing

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
    files: Mapping[str, str] | None = None,
    directory: tuple[str, str | None] = ("", None),
    must_be_charged: bool = False,
    further_inputs: Iterable[InputDigest] = (),
) -> bool:
    """Record the draws of a run before they are made; all of them, or none.

    `inputs` are the digests of the people drawn from, by kind, and `further_inputs` the digests
    under keys of joined ledgers; `files` are the digests of the files
    that decide the draws, by name, and the keyed ones of the confidential files that are measured.
    `directory` has the identity of the run's directory, which alone may draw from now on, and its
    location, for people. A draw that this run has been charged for is not charged
    again. Returns whether anything was charged.

    Raises BudgetRefused if a cap of the dataset would be passed; if an input is known under
    another dataset's name; if the run was charged before for the same draws with other
    parameters, noise, inputs, files or dataset; if `must_be_charged`, by the run's own record, and
    it was not; or if the ledger cannot be used.
    """
    digests = {kind: digest.whole for kind, digest in sorted(inputs.items())}
    rows = {draw.universe: _row(dataset, product, run_id, draw, digests) for draw in draws}
    with writing(ledger) as connection:
        own = connection.execute("SELECT * FROM draws WHERE run_id = ?", [run_id]).fetchall()
        known = {row["name"]: dict(row) for row in own}
        new = [draw for draw in draws if draw.universe not in known]
        for draw in draws:
            if draw.universe in known:
                _check_same_charge(connection, rows[draw.universe], known[draw.universe], draw)
        if new and must_be_charged:
            raise BudgetRefused(
                f"run {run_id} was charged, but the ledger {ledger.path} does not hold the "
                "charge; restore the ledger that it was charged to"
            )
        if known:
            _check_same_files(connection, run_id, files or {})
        elif new:
            conditions = [(run_id, *file) for file in sorted((files or {}).items())]
            insert(connection, "conditions", conditions)
            insert(connection, "directories", [(run_id, *directory)])
        if new:
            connection.execute("INSERT OR IGNORE INTO datasets (name) VALUES (?)", [dataset])
            _enter_inputs(connection, dataset, [*inputs.values(), *further_inputs])
            after_results = _has_results(connection, dataset)
            spent = [SpentDraw(draw.promised, draw.curve, after_results) for draw in new]
            check_caps(connection, dataset, spent)
        for draw in new:
            row = rows[draw.universe] | {"after_results": int(after_results)}
            insert(connection, "draws", [tuple(row.values())], row)
            insert(connection, "noise", [(run_id, draw.universe, *own) for own in _terms(draw)])
            if draw.curve is not None:
                insert(connection, "curves", [(run_id, draw.universe, curve_text(draw.curve))])
        connection.execute(
            "UPDATE directories SET folder = ?2 WHERE run_id = ?3 AND identity = ?1 "
            "AND folder IS NOT ?2",
            [*directory, run_id],
        )
    return bool(new)


def _has_results(connection: sqlite3.Connection, dataset: str) -> bool:
    """Whether something that was drawn from a dataset has been published."""
    query = "SELECT 1 FROM draws JOIN published USING (run_id) WHERE dataset = ? LIMIT 1"
    return value_of(connection, query, dataset) is not None


def has_draws(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether there is a draw of this run."""
    return value_of(connection, "SELECT 1 FROM draws WHERE run_id = ? LIMIT 1", run_id) is not None


def _row(
    dataset: str, product: str, run_id: str, draw: UniversePlan, digests: Mapping[str, str]
) -> dict[str, str | int | None]:
    stated = draw.promised.stated_factor
    return {
        "run_id": run_id,
        "name": draw.universe,
        "dataset": dataset,
        "product": product,
        "mechanism": draw.mechanism,
        **{column: str(getattr(draw.promised, column)) for column in OF_GUARANTEE},
        "stated_factor": None if stated is None else str(stated),
        "inputs": json.dumps(digests),
        "charged_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "n_values": draw.n_answers,
    }


def _terms(draw: UniversePlan) -> list[tuple[str, str, str]]:
    """The noise parameters of a draw, as the ledger has them: part, mechanism and parameter."""
    return sorted({(part, own.mechanism, str(own.parameter)) for part, own in draw.noises})


def terms_of(connection: sqlite3.Connection, run_id: str, draw: str) -> frozenset[tuple[str, ...]]:
    """The noise parameters that a draw was charged for."""
    query = "SELECT part, mechanism, parameter FROM noise WHERE run_id = ? AND draw = ?"
    return frozenset(map(tuple, connection.execute(query, [run_id, draw])))


def _check_same_charge(
    connection: sqlite3.Connection, asked: Mapping, known: Mapping, draw: UniversePlan
) -> None:
    """Raise BudgetRefused unless a requested draw equals the charged one, its noise too.

    Earlier versions did not enter the stated factor, nor always the number of values.
    """
    run_id = known["run_id"]
    differing = sorted(
        column
        for column in asked.keys() - {"charged_at"}
        if asked[column] != known[column]
        and not (column in ("n_values", "stated_factor") and known[column] is None)
    )
    if differing:
        raise BudgetRefused(
            f"run {run_id} was charged for draw {draw.universe!r} with another "
            f"{', '.join(differing)}; resume it as it was, or start a new run"
        )
    others = terms_of(connection, run_id, draw.universe) ^ {*_terms(draw)}
    if others:
        raise BudgetRefused(
            f"run {run_id} was charged for draw {draw.universe!r} with other noise at "
            f"{min(others)[0]}; resume it as it was, or start a new run"
        )


def _check_same_files(
    connection: sqlite3.Connection, run_id: str, files: Mapping[str, str]
) -> None:
    """Raise BudgetRefused unless the files that decide draws, and the confidential files that are
    measured, are the charged ones."""
    (charged_files, charged_truth), (own, truth) = conditions_of(connection, run_id), _split(files)
    differing = sorted({name for name, _ in charged_files.items() ^ own.items()})
    if differing:
        raise BudgetRefused(
            f"run {run_id} was charged with another {', '.join(differing)}; put the charged one "
            "back, or start a new run"
        )
    for name, digest in sorted(truth.items()):
        if charged_truth.get(name) != digest:
            raise BudgetRefused(changed_people_message(run_id, name))


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
        for digests, enough in (((item.whole, *item.parts), 1), (item.weak, ENOUGH_WEAK)):
            rows = connection.execute(
                "SELECT dataset FROM inputs WHERE digest IN (SELECT value FROM json_each(?)) "
                "GROUP BY dataset HAVING count(*) >= ?",
                [json.dumps(digests), enough],
            )
            found.update(dataset for (dataset,) in rows)
    return found


def changed_people_message(run_id: str, name: str) -> str:
    """Message: a confidential file that is measured is not the one the run was charged for."""
    return (
        f"{name} is not the file that run {run_id} was charged for; put that file back, or start a "
        "new run, since other people would be measured under this charge"
    )


def conditions_of(
    connection: sqlite3.Connection, run_id: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the public files that a run was charged with, and keyed ones of the confidential
    files that it was charged for, by name.
    """
    query = "SELECT name, digest FROM conditions WHERE run_id = ?"
    return _split(dict(connection.execute(query, [run_id]).fetchall()))


def _split(files: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The digests of public files, and those of confidential ones."""
    truth = {name: own for name, own in files.items() if name.startswith("confidential/")}
    return {name: own for name, own in files.items() if name not in truth}, truth
