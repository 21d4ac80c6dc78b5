"""Tying a run's noise to the ledger: charged before the first draw, published once, known after.

Every product measures through these functions, so that none can spend what the ledger does not
know, nor publish what it has published before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from spineflow.tasks.ledger.digests import InputDigest
from spineflow.tasks.ledger.ledger import (
    Draw,
    Ledger,
    charge,
    open_ledger,
    record_publication,
    refuse_redraw,
)
from spineflow.tasks.noise.randomness import RandomSource, SeededRandom, SystemRandom
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import sha256_of_file
from spineflow.tasks.runs.settings import ProductSettings


def charge_draws(
    run: RunDirectory,
    settings: ProductSettings,
    *,
    draws: Sequence[Draw],
    inputs: Mapping[str, InputDigest],
    files: Iterable[Path],
) -> None:
    """Enter a run's draws in the ledger, and check the measurements that are there against it.

    `inputs` are the digests of the people drawn from, by kind (`tasks.ledger.identity`).
    `files` are the files of noisy measurements that the run publishes, there yet or not: those
    that are there must be those that the ledger knows, and none that it knows may be missing. A
    run that was charged before is not charged again. Runs that are not private draw nothing worth
    recording. Raises BudgetRefused before any noise is drawn.
    """
    if not settings.is_private:
        return
    manifest = run.read_manifest()
    was_charged = "ledger" in manifest["stages"]
    ledger = open_ledger(Path(settings.privacy.ledger), must_exist=was_charged)
    charge(
        ledger,
        dataset=settings.privacy.dataset,
        product=manifest["product"],
        run_id=manifest["run_id"],
        draws=draws,
        inputs=inputs,
        must_be_charged=was_charged,
    )
    _hold_against_ledger(ledger, run, files)


def is_settled(run: RunDirectory, settings: ProductSettings, files: Sequence[Path]) -> bool:
    """Whether a run was seen to publish all of these files, so that it has nothing to charge.

    A run that was killed while it measured may have published what the ledger does not know yet,
    even if all files are there: it is charged again, which costs nothing, and the ledger learns of
    them. After that, neither the input nor its digests are needed. Raises BudgetRefused if a file
    is not the one that the ledger knows, unless the run is released already.
    """
    if not all(path.exists() for path in files):
        return False
    if run.release.exists():
        return True
    manifest = run.read_manifest()
    seen = {path for stage in manifest["stages"].values() for path in stage["digests"]}
    if not all(path.relative_to(run.root).as_posix() in seen for path in files):
        return False
    if settings.is_private:
        ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
        _hold_against_ledger(ledger, run, files)
    return True


def _hold_against_ledger(ledger: Ledger, run: RunDirectory, files: Iterable[Path]) -> None:
    """Hold the files of noisy measurements against the ledger, which learns of new ones.

    Raises BudgetRefused for a file that is not, or no longer, the one that the run has published.
    """
    run_id = run.read_manifest()["run_id"]
    for path in files:
        name = path.relative_to(run.root).as_posix()
        if path.exists():
            record_publication(ledger, run_id, name, sha256_of_file(path))
        else:
            refuse_redraw(ledger, run_id, name)


@contextmanager
def single_draw(run: RunDirectory, settings: ProductSettings, path: Path) -> Iterator[None]:
    """The block draws the noise of one file and publishes it; afterwards the ledger knows it.

    Raises BudgetRefused, before the block, if this run has published the file before.
    """
    if not settings.is_private:
        yield
        return
    run_id, name = run.read_manifest()["run_id"], path.relative_to(run.root).as_posix()
    ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
    refuse_redraw(ledger, run_id, name)
    yield
    record_publication(ledger, run_id, name, sha256_of_file(path))


def random_source(settings: ProductSettings, *key: str) -> RandomSource:
    """The system's randomness, or what a seed and the key of a draw fix."""
    if settings.privacy.seed is not None:
        return SeededRandom(settings.privacy.seed, *key)
    return SystemRandom()
