"""The commands of `spineflow ledger`: creation with caps, caps of datasets, joins, moved runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import App, Parameter

from ..tasks.ledger import charging, joining
from ..tasks.ledger.caps import Caps, EpsilonCap, set_caps, summary
from ..tasks.ledger.identity import list_ledger, listed_ledgers
from ..tasks.ledger.store import Ledger, open_ledger, refuse_unreachable
from ..tasks.products.product import existing_run
from ..tasks.runs.directory import RunDirectory, identity_of, make_identity
from ..tasks.runs.errors import BudgetRefused, InputRefused
from ..tasks.runs.files import digest_of, name_recorded
from ..tasks.runs.names import below
from ..tasks.runs.settings import checked_loss, checked_probability, exact_fraction
from .console import AsJson, RunFolder, print_ledger

app = App(name="ledger")

LedgerFile = Annotated[Path, Parameter(name="--ledger", help="file of the ledger")]
OtherLedger = Annotated[Path, Parameter(help="the other ledger")]
DEFAULT = Path("ledger.db")

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


NO_CAPS = WrittenCaps()


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


@app.default
@app.command
def show(*, file: LedgerFile = DEFAULT, as_json: AsJson = False) -> None:
    """Show the spending of every dataset, by product, and composed as bounded zCDP per person."""
    print_ledger(summary(_existing(file), is_exact=True), as_json=as_json)


@app.command
def init(*, caps: WrittenCaps = NO_CAPS, file: LedgerFile = DEFAULT) -> None:
    """Make a ledger, with caps that no spending may pass."""
    refuse_unreachable(file)
    print_ledger(summary(init_ledger(file, caps)), as_json=False)


@app.command
def set_cap(
    dataset: str | None = None,
    rho: str | None = None,
    /,
    *,
    caps: WrittenCaps = NO_CAPS,
    file: LedgerFile = DEFAULT,
) -> None:
    """Set a dataset's caps.

    Args:
        dataset: dataset whose caps are set
        rho: its cap of rho, a fraction such as 3/2
    """
    ledger = _existing(file)
    wanted = [] if rho is None else [(dataset, Caps(rho=_rho(rho)))]
    wanted += caps.by_dataset(dataset)
    if not wanted:
        raise InputRefused("set-cap needs a dataset and a rho: spineflow ledger set-cap D 3/2.")
    for name, cap in wanted:
        set_caps(ledger, name, cap)
    print_ledger(summary(ledger), as_json=False)


@app.command
def join(other: OtherLedger, /, *, file: LedgerFile = DEFAULT) -> None:
    """Move all that another ledger holds into this one."""
    _existing(file)
    ledger = joining.join(file, other)
    list_ledger(ledger.path)
    list_ledger(other.absolute(), is_listed=False)
    print_ledger(summary(ledger), as_json=False)


@app.command
def move(run_directory: RunFolder, /) -> None:
    """Say that a run goes on in a folder that was copied, restored or moved to another disk, and
    nowhere else."""
    run, _, settings = existing_run(run_directory)
    if not settings.is_private:
        raise InputRefused(f"{run.root} is not private, so no ledger knows it; resume it there.")
    run_id = run.read_manifest()["run_id"]
    with run.locked():
        make_identity(run)
        ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
        _refuse_incomplete(run, charging.published_files(ledger, run_id))
        charging.move(ledger, run_id, identity_of(run), str(run.root))
    print(f"the run goes on in {run.root}, and nowhere else")


@app.command(name="list")
def list_known() -> None:
    """Show the ledgers of this machine."""
    for path in listed_ledgers():
        print(path if path.exists() else f"{path} is missing")


@app.command
def forget(other: OtherLedger, /) -> None:
    """Take a ledger off the list of this machine's."""
    list_ledger(other.absolute(), is_listed=False)


def _existing(file: Path) -> Ledger:
    refuse_unreachable(file)
    if not file.exists():
        raise InputRefused(
            f"{file}: there is no such ledger; name it with --ledger, or make it with "
            "'spineflow ledger init'."
        )
    return open_ledger(file, must_exist=True)


def _refuse_incomplete(run: RunDirectory, published: Mapping[str, str]) -> None:
    """Raise BudgetRefused for a folder without some file that its run has published.

    The run could not continue there, and would be refused in its old folder from now on.
    """
    paths = {name: below(run.root, *name.split("/")) for name in published}
    lacking = [
        name
        for name, path in paths.items()
        if not name_recorded(path, published[name], run.unrecorded(path))
        or digest_of(path) != published[name]
    ]
    if lacking:
        raise BudgetRefused(
            f"{run.root} lacks {len(lacking)} of the {len(published)} files of measurements that "
            f"its run has published, such as {lacking[0]}; move the folder that has all of them, "
            "or restore them here, since none is drawn again"
        )


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
