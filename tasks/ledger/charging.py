"""Charge a run's noise to the ledger before the first draw, then claim, draw and record each file.

Every product measures through these functions, so that none can draw without a charge or publish a
measurement twice. A claim is the right to draw a file once; a file of noisy measurements
goes through these states, each a committed transaction:

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..noise.distributions import Noise, NoiseDraws, RandomSource, SeededRandom, SystemRandom
from ..runs.directory import (
    RunDirectory,
    digests_by_name,
    identity_of,
    refuse_altered,
    write_charged,
)
from ..runs.errors import BudgetRefused
from ..runs.files import Recording, digest_of, digests_of, name_recorded, sha256_of_file
from ..runs.settings import ProductSettings
from ..runs.stamps import write_parquet_once
from .caps import caps_of
from .charges import changed_people_message, charge, conditions_of, has_draws, terms_of
from .identity import list_ledger, lock_list, refuse_known_elsewhere, unasked_ledgers
from .plan import UniversePlan
from .recognition import InputDigest, file_digest
from .store import Ledger, ledger_at, open_ledger, reading, value_of, writing


@dataclass(eq=False)
class Claim:
    """The right to draw the noise of one file of a run, exactly as charged.

    `draw_name` names the charge that pays for the file; `terms` are its parts, mechanisms and exact
    parameters, as the ledger writes them. `charged_files` are digests of the files that decided the
    charge, `truth` keyed digests of the confidential files that the charge is for. `published` is
    the file's digest if it was published before; `n_drawn` counts the values that were drawn.
    """

    run_id: str
    identity: str
    name: str
    draw_name: str
    token: str
    terms: frozenset[tuple[str, ...]]
    charged_files: Mapping[str, str]
    truth: Mapping[str, str]
    published: str | None
    n_drawn: int = 0

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64, from the system's randomness.

        Raises BudgetRefused, before anything is drawn, for noise that this part of the run was
        not charged for, and for a file that was published before.
        """
        if self.published is not None:
            raise BudgetRefused(missing_message(self.run_id, self.name))
        if (part, noise.mechanism, str(noise.parameter)) not in self.terms:
            raise BudgetRefused(
                f"run {self.run_id} was not charged for {noise.mechanism.replace('_', ' ')} noise "
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


def record_publication(ledger: Ledger, claim: Claim, digest: str) -> None:
    """Record the digest of a claimed file and its number of drawn values, before it gets its name.

    The number is kept if the draw was charged for a number of values. Otherwise it may depend on
    the records, as in a histogram of observed values, and 0 is kept.

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
        draw_key = claim.run_id, claim.draw_name
        query = "SELECT n_values FROM draws WHERE run_id = ? AND name = ?"
        charged = value_of(connection, query, *draw_key)
        kept = 0 if charged is None else claim.n_drawn
        connection.execute(
            "INSERT INTO published VALUES (?, ?, ?, ?, ?)",
            [*file_key, digest, claim.draw_name, kept],
        )
        query = "SELECT SUM(n_values) FROM published WHERE run_id = ? AND draw = ?"
        if charged is not None and value_of(connection, query, *draw_key) > charged:
            raise BudgetRefused(
                f"run {claim.run_id} was charged for {charged} noisy values of {claim.draw_name!r} "
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


@dataclass(frozen=True)
class FileDraw:
    """The right to draw the noise of one file, and to publish the file.

    path : the file.
    noise : draws the noise.
    recording : records the file in the ledger before others can read it; None without a ledger.
    """

    path: Path
    noise: NoiseDraws
    recording: Recording | None = None

    def publish(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        row_group_size: int | None = None,
    ) -> Path:
        """Write rows of noisy answers to the file, and return its path.

        If the file exists, it is unchanged, and `batches` is not read, so that an iterator that
        would draw noise draws none.
        """
        return write_parquet_once(
            self.path,
            schema,
            batches,
            recording=self.recording,
            row_group_size=row_group_size,
        )


def charge_draws(
    run: RunDirectory,
    settings: ProductSettings,
    *,
    draws: Sequence[UniversePlan],
    inputs: Mapping[str, InputDigest],
    decided_by: Iterable[Path],
    truth: Iterable[Path],
    files: Iterable[Path],
) -> None:
    """Charge a run's draws to the ledger, and compare existing measurements with the ledger.

    A run that was charged before is not charged again. A run that is not private is not charged.

    Args:
        draws: The draws to charge.
        inputs: Digests of the people of the input, by kind (`tasks.ledger.identity`).
        decided_by: Public files that decide the draws: spine, plan, parameters.
        truth: Confidential files that are measured; missing ones are ignored.
        files: Files of noisy measurements, existing or not. Every file that exists must be recorded
            in the ledger, and every recorded file must exist.

    Raises BudgetRefused, before any noise is drawn, if the charge is refused or a measurement is
    missing or altered.
    """
    if not settings.is_private:
        return
    manifest = run.read_manifest()
    was_charged = "ledger" in manifest["stages"]
    charged = digests_by_name(run, decided_by)
    ledger = open_ledger(Path(settings.privacy.ledger), must_exist=was_charged)
    if not was_charged and settings.input.confidential:
        list_ledger(ledger.path)
    with lock_list():
        digests_elsewhere: list[InputDigest] = []
        with reading(ledger) as connection:
            is_new = not has_draws(connection, manifest["run_id"])
        if is_new:
            digests_elsewhere = refuse_known_elsewhere(run, settings, ledger, inputs)
        charge(
            ledger,
            dataset=settings.privacy.dataset,
            product=manifest["product"],
            run_id=manifest["run_id"],
            draws=draws,
            inputs=inputs,
            files=charged | truth_digests(run, ledger, [path for path in truth if path.exists()]),
            directory=(identity_of(run), str(run.root)),
            must_be_charged=was_charged,
            further_inputs=digests_elsewhere,
        )
    write_charged(run, charged)
    _compare_with_ledger(run, settings, files)


def truth_digests(run: RunDirectory, ledger: Ledger, files: Iterable[Path]) -> dict[str, str]:
    """Digests of a run's confidential files, by name, keyed with the key of its charge."""
    key = ledger.key_of_run(run.read_manifest()["run_id"])
    return {path.relative_to(run.root).as_posix(): file_digest(path, key) for path in files}


def is_settled(run: RunDirectory, settings: ProductSettings, files: Sequence[Path]) -> bool:
    """Whether all of these files are measured, so that the run needs no charge and no input.

    That is so if they exist and are in the manifest, or the run is released. A run that was killed
    while measuring is not settled: it is charged again, at no cost.

    Raises, unless the run is released, BudgetRefused if a file differs from the one in the ledger,
    and InputRefused if a file that decides the draws was edited.
    """
    if not all(path.exists() for path in files):
        return False
    if run.release.exists():
        return True
    manifest = run.read_manifest()
    recorded = {path for stage in manifest["stages"].values() for path in stage["digests"]}
    if not all(path.relative_to(run.root).as_posix() in recorded for path in files):
        return False
    refuse_unlike_ledger(run, settings)
    if settings.is_private:
        _compare_with_ledger(run, settings, files)
    return True


def refuse_unlike_ledger(run: RunDirectory, settings: ProductSettings) -> None:
    """Raise InputRefused if a file that decides the draws differs from its digest in the ledger.

    The files are compared with the run's own record of these digests if the run draws no charged
    noise, or if the run is released and its ledger is gone.
    """
    run.refuse_edited_settings()
    charged = None
    if settings.draws_noise and settings.is_private:
        ledger = ledger_at(Path(settings.privacy.ledger))
        if ledger.path.exists() or not run.release.exists():
            charged = charged_files(ledger, run.read_manifest()["run_id"])
    refuse_altered(run, charged)


def _compare_with_ledger(
    run: RunDirectory, settings: ProductSettings, files: Iterable[Path]
) -> None:
    """Compare the files of noisy measurements with the ledger.

    If a worker was killed after it recorded a file and before it named it, the file gets its name.
    Raises BudgetRefused for a file that is missing, or differs from the published one.
    """
    ledger, run_id = ledger_at(Path(settings.privacy.ledger)), run.read_manifest()["run_id"]
    names = {path.relative_to(run.root).as_posix(): path for path in files}
    digests = zip(names, digests_of(names.values()), strict=True)
    found = {name: digest for name, digest in digests if digest is not None}
    missing = verify_published(ledger, run_id, identity_of(run), found, names)
    for name, digest in missing.items():
        if not name_recorded(names[name], digest, run.unrecorded(names[name])):
            raise BudgetRefused(missing_message(run_id, name))


def warnings_of(settings: ProductSettings) -> list[str]:
    """Warnings before a run is charged: its dataset has no cap, or a ledger in the machine's list
    cannot be searched for the people of the input. Raises as `missing_cap_warning`.
    """
    warning = missing_cap_warning(settings)
    return [*([] if warning is None else [warning]), *unasked_ledgers(settings)]


def missing_cap_warning(settings: ProductSettings) -> str | None:
    """Warning before the first run on a dataset that has no cap, or no ledger yet; else None.

    Raises BudgetRefused if the ledger's folder does not exist, or the ledger is unusable.
    """
    if not settings.is_private or not settings.draws_noise:
        return None
    ledger, dataset = ledger_at(Path(settings.privacy.ledger)), settings.privacy.dataset
    if not ledger.path.parent.is_dir():
        raise BudgetRefused(
            f"the folder of the ledger {ledger.path} does not exist; make it, and the ledger with "
            f"'spineflow ledger init --ledger {ledger.path} --cap RHO'"
        )
    if not ledger.path.exists():
        if ledger.key_path.exists():
            return None  # The ledger is missing; opening it raises the error.
        return (
            f"there is no ledger {ledger.path}: this run makes it, and dataset {dataset!r} has no "
            "cap in it; an office sets caps before the first run, with "
            f"'spineflow ledger init --ledger {ledger.path} --cap RHO'"
        )
    with reading(open_ledger(ledger.path, must_exist=True)) as connection:
        query = "SELECT 1 FROM draws WHERE dataset = ? LIMIT 1"
        is_first = value_of(connection, query, dataset) is None
        caps = caps_of(connection, dataset)
    if caps.rho is not None or caps.epsilon is not None or not is_first:
        return None
    return (
        f"dataset {dataset!r} has no cap in the ledger {ledger.path}; set a cap "
        f"with 'spineflow ledger set-cap {dataset} RHO --ledger {ledger.path}'"
    )


@contextmanager
def single_draw(
    run: RunDirectory,
    settings: ProductSettings,
    path: Path,
    draw: str,
    *,
    truth: Sequence[Path] = (),
    seeds: Sequence[str] = (),
    reads: Sequence[Path] = (),
) -> Iterator[FileDraw]:
    """Claim the file at `path`; in the block, the caller draws its noise and publishes it.

    If a worker died after it recorded the file and before it named it, the file gets its name
    before the block, and publishing in the block does nothing.

    Args:
        draw: Name of the draw that was charged.
        truth: Confidential files that are measured.
        seeds: Key from which, with the seed of the settings, the noise follows if a seed is set.
        reads: Published files of the run that decide the draw.

    Raises BudgetRefused before the block if the file was published and is missing or replaced; if
    the ledger has no charge for the draw, or one for other people; or if the run draws in another
    directory. Raises InputRefused if a file that decides the draws has changed since the charge.
    """
    if not settings.is_private:
        uncharged = UnchargedNoise(random_choice_source(settings, *seeds))
        yield FileDraw(path, uncharged)
        return
    run_id, name = run.read_manifest()["run_id"], path.relative_to(run.root).as_posix()
    ledger = ledger_at(Path(settings.privacy.ledger))
    claimed = claim(
        ledger,
        run_id=run_id,
        identity=identity_of(run),
        name=name,
        draw=draw,
        reads={file.relative_to(run.root).as_posix(): digest_of(file) for file in reads},
    )
    refuse_altered(run, claimed.charged_files)
    if claimed.published is not None:
        if not name_recorded(path, claimed.published, run.unrecorded(path)):
            raise BudgetRefused(missing_message(run_id, name))
        if sha256_of_file(path) != claimed.published:
            raise BudgetRefused(replaced_message(run_id, name))
    else:
        for truth_name, digest in truth_digests(run, ledger, truth).items():
            if claimed.truth.get(truth_name) != digest:
                raise BudgetRefused(changed_people_message(run_id, truth_name))

    def record(file: Path) -> None:
        record_publication(ledger, claimed, sha256_of_file(file))

    yield FileDraw(path, claimed, Recording(run.unrecorded(path), record))


def random_choice_source(settings: ProductSettings, *key: str) -> RandomSource:
    """Source of random bits for uncharged noise, and for choices such as truncation of records.

    If the settings have a seed, the seed and `key` determine the bits.
    """
    if settings.privacy.seed is not None:
        return SeededRandom(settings.privacy.seed, *key)
    return SystemRandom()
