"""The commands of `spineflow ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ..tasks.ledger.caps import summary
from ..tasks.ledger.identity import forget_ledger, listed_ledgers
from ..tasks.ledger.store import Ledger, open_ledger, refuse_unreachable
from ..tasks.runs.errors import InputRefused
from .arguments import AsJson, RunFolder
from .console import print_ledger
from .ledger import WrittenCaps, init_ledger, join_ledgers, move_run, set_written_caps

app = App(name="ledger")

LedgerFile = Annotated[Path, Parameter(name="--ledger", help="file of the ledger")]
OtherLedger = Annotated[Path, Parameter(help="the other ledger")]
DEFAULT = Path("ledger.db")
NO_CAPS = WrittenCaps()


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
    set_written_caps(ledger, dataset, rho, caps)
    print_ledger(summary(ledger), as_json=False)


@app.command
def join(other: OtherLedger, /, *, file: LedgerFile = DEFAULT) -> None:
    """Move all that another ledger holds into this one."""
    _existing(file)
    print_ledger(summary(join_ledgers(file, other)), as_json=False)


@app.command
def move(run_directory: RunFolder, /) -> None:
    """Say that a run goes on in a folder that was copied, restored or moved to another disk, and
    nowhere else."""
    print(f"the run goes on in {move_run(run_directory)}, and nowhere else")


@app.command(name="list")
def list_known() -> None:
    """Show the ledgers of this machine."""
    for path in listed_ledgers():
        print(path if path.exists() else f"{path} is missing")


@app.command
def forget(other: OtherLedger, /) -> None:
    """Take a ledger off the list of this machine's."""
    forget_ledger(other.absolute())


def _existing(file: Path) -> Ledger:
    refuse_unreachable(file)
    if not file.exists():
        raise InputRefused(
            f"{file}: there is no such ledger; name it with --ledger, or make it with "
            "'spineflow ledger init'."
        )
    return open_ledger(file, must_exist=True)
