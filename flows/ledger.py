"""Work of the commands of `spineflow ledger`: creation with caps, caps of datasets, moved runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

from cyclopts import Parameter

from ..tasks.ledger.caps import Caps, EpsilonCap, set_caps
from ..tasks.ledger.claims import move, published_files
from ..tasks.ledger.identity import forget_ledger, list_ledger
from ..tasks.ledger.joining import join
from ..tasks.ledger.store import Ledger, open_ledger
from ..tasks.products.registry import product
from ..tasks.runs.charged_files import digest_of
from ..tasks.runs.directory import RunDirectory, identity_of, make_identity
from ..tasks.runs.errors import BudgetRefused, InputRefused
from ..tasks.runs.names import below
from ..tasks.runs.settings import checked_loss, checked_probability, exact_fraction
from ..tasks.runs.settings_files import settings_of_run
from ..tasks.runs.writing import name_recorded

Parsed = TypeVar("Parsed")


@Parameter(name="*")
@dataclass(frozen=True)
class WrittenCaps:
    """Caps from the command line.

    Args:
        cap: a cap of rho of bounded zCDP per person, [DATASET=]CAP, of one dataset or of each
            without its own; may be given several times
        delta_cap: a cap of the sum of the deltas, [DATASET=]CAP
        epsilon_cap: a cap of epsilon at a delta, [DATASET=]EPSILON@DELTA, such as
            16.5@1e-10
        planned: assert that all runs under the caps of epsilon are planned before the first result
            is seen, so that the exact curve of all of them counts
    """

    cap: Sequence[str] = ()
    delta_cap: Sequence[str] = ()
    epsilon_cap: Sequence[str] = ()
    planned: bool = False

    def by_dataset(self, dataset: str | None = None) -> list[tuple[str | None, Caps]]:
        """Each cap and its dataset, by default `dataset`; None is the default for datasets without
        own caps. Raises InputRefused for an invalid cap.
        """
        if self.planned and not self.epsilon_cap:
            raise InputRefused("--planned applies to an --epsilon-cap; give one.")
        found = [(name, Caps(rho=cap)) for name, cap in _caps(self.cap, _rho)]
        found += [(name, Caps(delta=cap)) for name, cap in _caps(self.delta_cap, _delta)]
        for name, (epsilon, delta) in _caps(self.epsilon_cap, _epsilon):
            found.append((name, Caps(epsilon=EpsilonCap(epsilon, delta, self.planned))))
        return [(name or dataset, caps) for name, caps in found]


def init_ledger(path: Path, written: WrittenCaps, *, is_listed: bool = True) -> Ledger:
    """Make a ledger in a folder that exists, with its caps, and enter it in the list of this
    machine's ledgers.

    Raises InputRefused for an invalid cap, BudgetRefused for an existing ledger.
    """
    caps = written.by_dataset()
    if path.exists():
        raise BudgetRefused(
            f"the ledger {path} is there already; its caps are changed with "
            f"'spineflow ledger set-cap --ledger {path}'"
        )
    ledger = open_ledger(path)
    for name, cap in caps:
        set_caps(ledger, name, cap)
    if is_listed:
        list_ledger(ledger.path)
    return ledger


def join_ledgers(path: Path, other: Path) -> Ledger:
    """Move the rows of another ledger into this one, and correct the list of this machine's."""
    ledger = join(path, other)
    list_ledger(ledger.path)
    forget_ledger(other.absolute())
    return ledger


def set_written_caps(
    ledger: Ledger, dataset: str | None, rho: str | None, written: WrittenCaps
) -> None:
    """Set the caps of a dataset, or, without one, the options' caps; raises InputRefused."""
    caps = [] if rho is None else [(dataset, Caps(rho=_rho(rho)))]
    caps += written.by_dataset(dataset)
    if not caps:
        raise InputRefused("set-cap needs a dataset and a rho: spineflow ledger set-cap D 3/2.")
    for name, cap in caps:
        set_caps(ledger, name, cap)


def move_run(folder: Path) -> Path:
    """Bind a run to a folder, in which it draws from now on; returns the folder.

    Raises InputRefused for a run that no ledger knows, BudgetRefused for one that is not charged,
    and for a folder without all measurements that the run has published.
    """
    run = RunDirectory(folder.resolve())
    manifest = run.read_manifest()
    settings = settings_of_run(product(manifest["product"]).settings, run)
    if not settings.is_private:
        raise InputRefused(f"{run.root} is not private, so no ledger knows it; resume it there.")
    with run.locked():
        make_identity(run)
        ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
        _refuse_incomplete(run, published_files(ledger, manifest["run_id"]))
        move(ledger, manifest["run_id"], identity_of(run), str(run.root))
    return run.root


def _refuse_incomplete(run: RunDirectory, published: Mapping[str, str]) -> None:
    """Raise BudgetRefused for a folder without some file that its run has published.

    The run could not continue there, and would be refused in its old folder from now on.
    """
    lacking = [name for name, digest in published.items() if not _has_digest(run, name, digest)]
    if lacking:
        raise BudgetRefused(
            f"{run.root} lacks {len(lacking)} of the {len(published)} files of measurements that "
            f"its run has published, such as {lacking[0]}; move the folder that has all of them, "
            "or restore them here, since none is drawn again"
        )


def _has_digest(run: RunDirectory, name: str, digest: str) -> bool:
    path = below(run.root, *name.split("/"))
    return name_recorded(path, digest, run.unrecorded(path)) and digest_of(path) == digest


def _caps(
    texts: Sequence[str], parse: Callable[[str], Parsed]
) -> Iterator[tuple[str | None, Parsed]]:
    """Dataset, None for all others, and cap of texts CAP and DATASET=CAP."""
    for text in texts:
        name, _, cap = text.rpartition("=")
        yield name or None, parse(cap)


def _cap(check: Callable[[Fraction], Fraction], text: str) -> Fraction:
    """A cap that passes a check; raises InputRefused for another."""
    try:
        return check(exact_fraction(text))
    except ValueError as error:
        raise InputRefused(f"The cap {text} {error}.") from None


_rho, _delta = partial(_cap, checked_loss), partial(_cap, checked_probability)


def _epsilon(text: str) -> tuple[Fraction, Fraction]:
    """Epsilon and delta of EPSILON@DELTA."""
    epsilon, at, delta = text.partition("@")
    if not at:
        raise InputRefused(f"{text} is no epsilon at a delta; write for example 16.5@1e-10.")
    return _rho(epsilon), _delta(delta)
