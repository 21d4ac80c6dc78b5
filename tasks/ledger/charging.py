"""Tying a run's noise to the ledger: charged before the first draw, claimed, drawn and known.

Every product measures through these functions, so that none can spend without the ledger's
knowledge, draw without a charge, or publish a measurement twice. The protocol is
in `claims`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ..noise.draws import NoiseDraws, UnchargedNoise
from ..noise.randomness import RandomSource, SeededRandom, SystemRandom
from ..runs.charged_files import (
    digest_of,
    digests_by_name,
    digests_of,
    refuse_altered,
    write_charged,
)
from ..runs.directory import RunDirectory, identity_of
from ..runs.errors import BudgetRefused
from ..runs.files import sha256_of_file
from ..runs.settings import ProductSettings
from ..runs.stamps import stamp, write_parquet_once
from ..runs.writing import Recording, name_recorded
from .caps import caps_of
from .charges import changed_people_message, charge, is_charged
from .claims import (
    ChargedNoise,
    charged_files,
    claim,
    record_publication,
    redrawn,
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
    is_private: bool
    recording: Recording | None = None

    def publish(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        row_group_size: int | None = None,
    ) -> Path:
        """Write the file of rows of noisy answers, and return its path. An existing file is kept,
        and nothing is taken from `batches`, so that an iterator that draws noise draws none.
        """
        return write_parquet_once(
            self.path,
            schema,
            batches,
            stamp(is_private=self.is_private),
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

    `inputs` are the digests of the people drawn from, by kind (`tasks.ledger.identity`);
    `decided_by` are the public files that decide the draws: spine, plan, parameters; `truth` the
    confidential files that are measured, as far as they exist. `files` are the files of noisy
    measurements of the run, present or not: present ones must be known to the ledger, and all known
    ones must be present. A run that was
    charged before is not charged again. Runs that are not private draw nothing worth recording.
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
            charged_files=charged,
            truth=truth_digests(run, ledger, [path for path in truth if path.exists()]),
            identity=identity_of(run),
            folder=str(run.root),
            must_be_charged=was_charged,
            further_inputs=further,
        )
    write_charged(run, charged)
    _compare_with_ledger(run, settings, files)


def truth_digests(run: RunDirectory, ledger: Ledger, files: Iterable[Path]) -> dict[str, str]:
    """Digests of confidential files of a run by name, under the key that it was charged with."""
    key = ledger.key_of_run(run.read_manifest()["run_id"])
    return {path.relative_to(run.root).as_posix(): file_digest(path, key) for path in files}


def is_settled(run: RunDirectory, settings: ProductSettings, files: Sequence[Path]) -> bool:
    """Whether a run was seen to publish all of these files, so that it has nothing to charge.

    A run that was killed while it measured is charged again, which costs nothing. After that,
    neither the input nor its digests are needed. Raises BudgetRefused if a file is not the one
    that the ledger knows, InputRefused if a file that decides the draws was edited, unless the run
    is released already.
    """
    if not all(path.exists() for path in files):
        return False
    if run.release.exists():
        return True
    manifest = run.read_manifest()
    seen = {path for stage in manifest["stages"].values() for path in stage["digests"]}
    if not all(path.relative_to(run.root).as_posix() in seen for path in files):
        return False
    refuse_unlike_ledger(run, settings)
    if settings.is_private:
        _compare_with_ledger(run, settings, files)
    return True


def refuse_unlike_ledger(run: RunDirectory, settings: ProductSettings) -> None:
    """Raise InputRefused if a file that decides the draws is not as the ledger has it.

    A released run may outlive its ledger, and one that draws no noise has no ledger; it is then
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
    """Compare the files of noisy measurements with the ledger; name recorded ones without a name.

    Raises BudgetRefused for a file that is missing, or differs from the published one.
    """
    ledger, run_id = ledger_at(Path(settings.privacy.ledger)), run.read_manifest()["run_id"]
    names = {path.relative_to(run.root).as_posix(): path for path in files}
    there = {name: path for name, path in names.items() if path.exists()}
    found = dict(zip(there, digests_of(there.values()), strict=True))
    missing = verify_published(ledger, run_id, identity_of(run), found, names)
    for name, digest in missing.items():
        if not name_recorded(names[name], digest, run.unrecorded(names[name])):
            raise BudgetRefused(redrawn(run_id, name))


def warnings_of(settings: ProductSettings) -> list[str]:
    """Warnings before a run is charged: of a dataset without a cap, and of ledgers that cannot be
    asked for its people. Raises as `first_run_notice`.
    """
    notice = first_run_notice(settings)
    return [*([] if notice is None else [notice]), *unasked_ledgers(settings)]


def first_run_notice(settings: ProductSettings) -> str | None:
    """Notice before the first run on a dataset without a cap, or None.

    Raises BudgetRefused where the ledger's folder does not exist, or its ledger is unusable.
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

    `truth` are the confidential files that are measured, `reads` published files of the run that
    decide the draw; `seeds` name the draw where the settings fix a seed. If a worker died after
    recording and before renaming the file, the file is renamed, and publishing it in the block
    does nothing.

    Raises BudgetRefused, before the block, if this run has published the file before and it is
    missing, if the ledger has no charge for it or one for other people, or if another directory
    draws for the run; InputRefused if a file that decides the draws differs from the one that was
    charged.
    """
    if not settings.is_private:
        uncharged = UnchargedNoise(random_choice_source(settings, *seeds))
        yield FileDraw(path, uncharged, is_private=False)
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
            raise BudgetRefused(redrawn(run_id, name))
        if sha256_of_file(path) != claimed.published:
            raise BudgetRefused(replaced_message(run_id, name))
    else:
        for measured, digest in truth_digests(run, ledger, truth).items():
            if claimed.truth.get(measured) != digest:
                raise BudgetRefused(changed_people_message(run_id, measured))
    noise = ChargedNoise(claimed)

    def record(file: Path) -> None:
        record_publication(ledger, claimed, sha256_of_file(file), noise.n_drawn)

    yield FileDraw(path, noise, is_private=True, recording=Recording(run.unrecorded(path), record))


def random_choice_source(settings: ProductSettings, *key: str) -> RandomSource:
    """Random bits for choices other than noise, such as truncation of records, and for noise of a
    run that is not private; fixed by the settings' seed, if any, and a key."""
    if settings.privacy.seed is not None:
        return SeededRandom(settings.privacy.seed, *key)
    return SystemRandom()
