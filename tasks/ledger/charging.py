"""Charge a run's noise to the ledger before the first draw, then claim, draw and record each file.

Every product measures through these functions, so that none can draw without a charge or publish a
measurement twice. `claims` has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ..noise.distributions import NoiseDraws, RandomSource, SeededRandom, SystemRandom
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
from .charges import changed_people_message, charge, is_charged
from .claims import (
    ChargedNoise,
    UnchargedNoise,
    charged_files,
    claim,
    missing_message,
    record_publication,
    replaced_message,
    verify_published,
)
from .identity import list_ledger, lock_list, refuse_known_elsewhere, unasked_ledgers
from .plan import UniversePlan
from .recognition import InputDigest, file_digest
from .store import Ledger, ledger_at, open_ledger, reading, value_of


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
        if not is_charged(ledger, manifest["run_id"]):
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
    noise = ChargedNoise(claimed)

    def record(file: Path) -> None:
        record_publication(ledger, claimed, sha256_of_file(file), noise.n_drawn)

    yield FileDraw(path, noise, Recording(run.unrecorded(path), record))


def random_choice_source(settings: ProductSettings, *key: str) -> RandomSource:
    """Source of random bits for uncharged noise, and for choices such as truncation of records.

    If the settings have a seed, the seed and `key` determine the bits.
    """
    if settings.privacy.seed is not None:
        return SeededRandom(settings.privacy.seed, *key)
    return SystemRandom()
