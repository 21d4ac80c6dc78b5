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

from ..noise.distributions import RandomSource, SeededRandom, SystemRandom
from ..noise.draws import NoiseDraws, UnchargedNoise
from ..runs.charged_files import (
    digest_of,
    digests_by_name,
    digests_of,
    refuse_altered,
    write_charged,
)
from ..runs.directory import RunDirectory, identity_of
from ..runs.errors import BudgetRefused
from ..runs.files import Recording, name_recorded, sha256_of_file
from ..runs.settings import ProductSettings
from ..runs.stamps import write_parquet_once
from .caps import caps_of
from .charges import changed_people_message, charge, is_charged
from .claims import (
    ChargedNoise,
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
    """Draws the noise of the file at `path`, and records the file before others can read it.

    `recording` is passed to `write_once`; None without a ledger.
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
        """Write rows of noisy answers to the file, and return its path. If the file exists, it
        stays and `batches` is not read: an iterator that draws noise then draws none.
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
    """Enter a run's draws in the ledger, and check existing measurements against it.

    A run that was charged before is not charged again. Runs that are not private are not recorded.

    Args:
        inputs: Digests of the people of the input, by kind (`tasks.ledger.identity`).
        decided_by: Public files that decide the draws: spine, plan, parameters.
        truth: Confidential files that are measured; missing ones are ignored.
        files: Files of noisy measurements, existing or not. The ledger must know every existing
            one, and every one that it knows must exist.

    Raises BudgetRefused before any noise is drawn.
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
        further: list[InputDigest] = []
        if not is_charged(ledger, manifest["run_id"]):
            further = refuse_known_elsewhere(run, settings, ledger, inputs)
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
            further_inputs=further,
        )
    write_charged(run, charged)
    _compare_with_ledger(run, settings, files)


def truth_digests(run: RunDirectory, ledger: Ledger, files: Iterable[Path]) -> dict[str, str]:
    """Digests of confidential files of a run by name, under the key of its charge."""
    key = ledger.key_of_run(run.read_manifest()["run_id"])
    return {path.relative_to(run.root).as_posix(): file_digest(path, key) for path in files}


def is_settled(run: RunDirectory, settings: ProductSettings, files: Sequence[Path]) -> bool:
    """Whether the manifest has all of these files, so that neither a charge nor input is needed.

    A run that was killed while measuring is charged again, at no cost. Raises, unless the run is
    released, BudgetRefused if a file differs from the one in the ledger, and InputRefused if a
    file that decides the draws was edited.
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

    A run without a ledger, since it draws no noise or is released and its ledger is gone, is
    compared with its own records.
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

    A recorded file that a killed worker left without its name gets the name. Raises BudgetRefused
    for a file that is missing, or differs from the published one.
    """
    ledger, run_id = ledger_at(Path(settings.privacy.ledger)), run.read_manifest()["run_id"]
    names = {path.relative_to(run.root).as_posix(): path for path in files}
    existing = {name: path for name, path in names.items() if path.exists()}
    found = dict(zip(existing, digests_of(existing.values()), strict=True))
    missing = verify_published(ledger, run_id, identity_of(run), found, names)
    for name, digest in missing.items():
        if not name_recorded(names[name], digest, run.unrecorded(names[name])):
            raise BudgetRefused(missing_message(run_id, name))


def warnings_of(settings: ProductSettings) -> list[str]:
    """Warnings before a run is charged: a dataset has no cap, or a ledger cannot be searched for
    the run's people. Raises as `first_run_notice`.
    """
    notice = first_run_notice(settings)
    return [*([] if notice is None else [notice]), *unasked_ledgers(settings)]


def first_run_notice(settings: ProductSettings) -> str | None:
    """Notice before the first run on a dataset without a cap, or None.

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
            return None  # Opening it reports the missing ledger.
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
    """The block draws the noise of one file and publishes it, under the run's charge for `draw`.

    If a worker died after recording the file and before naming it, the file is named first, and
    publishing in the block does nothing.

    Args:
        truth: Confidential files that are measured.
        seeds: Key of the draw where the settings fix a seed.
        reads: Published files of the run that decide the draw.

    Raises BudgetRefused, before the block, if the run has published the file and it is missing or
    replaced, if the ledger has no charge for it or a charge for other people, or if another
    directory draws for the run; InputRefused if a file that decides the draws has changed since the
    charge.
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
    """Random bits for choices other than noise, such as truncation of records, and for the noise
    of runs that are not private. If the settings have a seed, it and `key` determine the bits."""
    if settings.privacy.seed is not None:
        return SeededRandom(settings.privacy.seed, *key)
    return SystemRandom()
