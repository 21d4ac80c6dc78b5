"""Claims on files of a run: the right to draw a file once, and the record of its publication.

A file of noisy measurements goes through these states, each a committed transaction:

    charged   -> claimed     by `claim`, before anything is drawn
    claimed   -> published   by `record_publication`, with its digest, before it gets its name
    published                for good

Until a file is recorded, its noise is in memory, or in a file that is closed to other accounts
(`runs.files`): unseen. If its worker dies before that, the file may be claimed again and is drawn
anew under the same charge. Each claim has a token, and only the last claimant can record: a worker
taken for dead, or a second worker, is refused, and its draw is dropped.

Once a file is recorded its noise may have been seen, and nothing else is ever drawn in its place.
If a worker dies after recording and before renaming, the next worker renames the file, which is
flushed to disk.

A run draws only in the directory that it was charged in (table `directories`); copies are refused.
`move` replaces that directory, for example after a restore from a backup or a move to another disk.
It also ends the claims of the old directory, since recording checks the directory too.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from ..noise.distributions import Noise, RandomSource, SystemRandom
from ..runs.errors import BudgetRefused
from .charges import conditions_of, has_draws, terms_of
from .store import Ledger, reading, value_of, writing


@dataclass(frozen=True)
class Claim:
    """The right to draw one file of a run; `published` is its digest if it was published before.

    `draw` names the charge that pays for the file; `terms` are its parts, mechanisms and exact
    parameters, as the ledger writes them. `charged_files` are digests of the files that decided the
    charge, `truth` keyed digests of the confidential files that the charge is for.
    """

    run_id: str
    identity: str
    name: str
    draw: str
    token: str
    terms: frozenset[tuple[str, ...]]
    charged_files: Mapping[str, str]
    truth: Mapping[str, str]
    published: str | None


class ChargedNoise:
    """Draws the noise of one file, exactly as charged; `n_drawn` counts the values."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self.n_drawn = 0

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64, from the system's randomness.

        Raises BudgetRefused, before anything is drawn, for noise that this part of the run was
        not charged for, and for a file that was published before.
        """
        claim = self._claim
        if claim.published is not None:
            raise BudgetRefused(missing_message(claim.run_id, claim.name))
        if (part, noise.mechanism, str(noise.parameter)) not in claim.terms:
            raise BudgetRefused(
                f"run {claim.run_id} was not charged for {noise.mechanism.replace('_', ' ')} noise "
                f"of parameter {noise.parameter} at {part}; resume it with the settings, spine and "
                "plan that it was charged with, or start a new run"
            )
        self.n_drawn += size
        from ..noise.sampler import draw_noise  # Its kernels take long to load.

        return draw_noise(noise.mechanism, noise.parameter, size, SystemRandom())


@dataclass(frozen=True)
class UnchargedNoise:
    """Noise that no ledger knows of, from any source: for studies and runs that are not private."""

    source: RandomSource

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64, for any part."""
        from ..noise.sampler import draw_noise

        return draw_noise(noise.mechanism, noise.parameter, size, self.source)


def claim(
    ledger: Ledger,
    *,
    run_id: str,
    identity: str,
    name: str,
    draw: str,
    reads: Mapping[str, str] | None = None,
) -> Claim:
    """Claim a file of a run before it is drawn, under a charge in the ledger.

    `reads` are the digests of published files of the run that decide the draw. Raises
    BudgetRefused if the run has no such charge, if another directory draws for the run, if a
    file that is read differs from the published one, or if the ledger cannot be used.
    """
    token = secrets.token_hex(16)
    with writing(ledger) as connection:
        query = "SELECT 1 FROM draws WHERE run_id = ? AND name = ?"
        if value_of(connection, query, run_id, draw) is None:
            raise BudgetRefused(
                f"the ledger {ledger.path} holds no charge for draw {draw!r} of run {run_id}; "
                "restore the ledger that it was charged to"
            )
        _check_directory(connection, run_id, identity)
        for other, digest in (reads or {}).items():
            if _published_digest(connection, run_id, other) != digest:
                raise BudgetRefused(replaced_message(run_id, other))
        published = _published_digest(connection, run_id, name)
        if published is None:
            connection.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)",
                [run_id, name, token, datetime.now(UTC).isoformat(timespec="seconds")],
            )
        terms, conditions = terms_of(connection, run_id, draw), conditions_of(connection, run_id)
    return Claim(run_id, identity, name, draw, token, terms, *conditions, published)


def record_publication(ledger: Ledger, claim: Claim, digest: str, n_drawn: int = 0) -> None:
    """Record the digest of a claimed file of `n_drawn` noisy values, before the file gets its name.

    `n_drawn` is kept if the draw was charged for a number of values. Otherwise it may depend on the
    records, as in a histogram of observed values, and 0 is kept.

    Raises BudgetRefused if the claim is no longer the last, if another directory now draws for the
    run, or if more values were drawn than charged.
    """
    file_key = [claim.run_id, claim.name]
    with writing(ledger) as connection:
        _check_directory(connection, claim.run_id, claim.identity)
        query = "SELECT token FROM claims WHERE run_id = ? AND name = ?"
        if value_of(connection, query, *file_key) != claim.token:
            raise BudgetRefused(
                f"{claim.name} of run {claim.run_id} was taken over by another worker; this one's "
                "draw is dropped, so let the other go on"
            )
        connection.execute("DELETE FROM claims WHERE run_id = ? AND name = ?", file_key)
        draw_key = claim.run_id, claim.draw
        query = "SELECT n_values FROM draws WHERE run_id = ? AND name = ?"
        charged = value_of(connection, query, *draw_key)
        kept = 0 if charged is None else n_drawn
        connection.execute(
            "INSERT INTO published VALUES (?, ?, ?, ?, ?)", [*file_key, digest, claim.draw, kept]
        )
        query = "SELECT SUM(n_values) FROM published WHERE run_id = ? AND draw = ?"
        if charged is not None and value_of(connection, query, *draw_key) > charged:
            raise BudgetRefused(
                f"run {claim.run_id} was charged for {charged} noisy values of {claim.draw!r} "
                "and has drawn more; report this as an error of the program"
            )


def charged_files(ledger: Ledger, run_id: str) -> dict[str, str]:
    """Digests of the files that a run's draws were charged with, by name; may be empty."""
    with reading(ledger) as connection:
        return conditions_of(connection, run_id)[0]


def verify_published(
    ledger: Ledger, run_id: str, identity: str, found: Mapping[str, str], names: Iterable[str]
) -> dict[str, str]:
    """Compare the files of a run with the ledger; return the digests of published files not found.

    `found` are the digests of the existing files, `names` the names of all files that the run
    publishes now.

    Raises BudgetRefused if the ledger has no charge of the run; for a file that differs from the
    published one, or that was never recorded; for a published file that the run would no longer
    publish, since its people would be measured again in another partition; and if files are left to
    draw and another directory draws for the run.
    """
    names = set(names)
    with reading(ledger) as connection:
        if not has_draws(connection, run_id):
            raise BudgetRefused(uncharged_message(ledger, run_id))
        published = _published_digests(connection, run_id)
        for name, digest in sorted(found.items()):
            if published.get(name, digest) != digest:
                raise BudgetRefused(replaced_message(run_id, name))
        dropped = sorted(published.keys() - names)
        if dropped:
            raise BudgetRefused(
                f"run {run_id} has published {dropped[0]}, which its spine or plan no longer has; "
                "restore spine and plan, since people would be measured twice"
            )
        unrecorded = sorted(found.keys() - published.keys())
        if unrecorded:
            raise BudgetRefused(
                f"{unrecorded[0]} is in the directory of run {run_id}, but the ledger does not "
                "know it; remove it if it does not belong there, or restore the ledger"
            )
        if names - published.keys() - found.keys():
            _check_directory(connection, run_id, identity)
    return {name: digest for name, digest in published.items() if name not in found}


def move(ledger: Ledger, run_id: str, identity: str, folder: str | None = None) -> None:
    """Bind a run to another directory; `folder` is its location, shown to operators.

    Raises BudgetRefused for an unknown run.
    """
    with writing(ledger) as connection:
        if not has_draws(connection, run_id):
            raise BudgetRefused(
                f"the ledger {ledger.path} holds no charge of run {run_id}; there is nothing to "
                "move, so resume the run"
            )
        connection.execute(
            "INSERT INTO directories (run_id, identity, folder) VALUES (?, ?, ?) "
            "ON CONFLICT (run_id) DO UPDATE SET identity = excluded.identity, "
            "folder = excluded.folder",
            [run_id, identity, folder],
        )


def published_files(ledger: Ledger, run_id: str) -> dict[str, str]:
    """Digests of all files that a run has published, by name."""
    with reading(ledger) as connection:
        return _published_digests(connection, run_id)


def uncharged_message(ledger: Ledger, run_id: str) -> str:
    """Message: a run's measurements are without a charge in the ledger."""
    return (
        f"the ledger {ledger.path} does not hold the charges of run {run_id}; restore the ledger "
        "that it was charged to, and resume the run"
    )


def missing_message(run_id: str, name: str) -> str:
    """Message: a published file is missing and cannot be drawn again."""
    return (
        f"{name} was published by run {run_id} and is missing; restore the file, or start a new "
        "run, since a published measurement is never drawn again"
    )


def replaced_message(run_id: str, name: str) -> str:
    """Message: a file differs from the published one."""
    return (
        f"{name} is not the measurement that run {run_id} has published; restore that file, or "
        "start a new run"
    )


def _published_digests(connection: sqlite3.Connection, run_id: str) -> dict[str, str]:
    rows = connection.execute("SELECT name, digest FROM published WHERE run_id = ?", [run_id])
    return dict(rows.fetchall())


def _published_digest(connection: sqlite3.Connection, run_id: str, name: str) -> str | None:
    query = "SELECT digest FROM published WHERE run_id = ? AND name = ?"
    return value_of(connection, query, run_id, name)


def _check_directory(connection: sqlite3.Connection, run_id: str, identity: str) -> None:
    """Raise BudgetRefused unless a run draws in this directory."""
    query = "SELECT identity FROM directories WHERE run_id = ?"
    if value_of(connection, query, run_id) != identity:
        raise BudgetRefused(
            f"run {run_id} draws in another directory than this one, by the file .identity: this "
            "directory is a copy, or was restored or moved to another disk; resume the run in the "
            "other one, or make this its only directory with 'spineflow ledger move RUN_DIR'"
        )
