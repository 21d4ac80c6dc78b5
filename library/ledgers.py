"""The privacy-loss ledger: creation with its caps, and spending as a data frame."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pandas as pd
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import exact_fraction


def make_ledger(path: str | Path, cap: str | int | Fraction) -> Path:
    """Make a ledger whose datasets may each spend `cap`, a rho of bounded zCDP per person.

    An office does this once, before anything runs. Returns the ledger's path. A ledger that
    exists is kept, if it has this cap, so that a notebook can run again.

    Raises SpineflowError for a cap that is no exact fraction, and for a ledger with another cap.

    Example: `spineflow.make_ledger("ledger.db", "3")`.
    """
    from spineflow.flows.ledger import WrittenCaps, init_ledger

    file = Path(path)
    try:
        wanted = exact_fraction(cap)
    except ValueError:
        raise InputRefused(
            f"A cap of {cap} is no exact fraction; write it in quotes, as '3/2'."
        ) from None
    if file.exists():
        now = summary(open_ledger(file, must_exist=True))["cap"]
        if now is None or Fraction(now) != wanted:
            raise InputRefused(
                f"The ledger {file} is there already, with the cap {now or 'none'}; change it with "
                f"'spineflow ledger set-cap --ledger {file} --cap {cap}'."
            )
        return file
    init_ledger(file, WrittenCaps(cap=[str(wanted)]))
    return file


def ledger(path: str | Path) -> pd.DataFrame:
    """Spending of every dataset of a ledger, one row a dataset.

    Columns: `dataset`, `rho` spent, of bounded zCDP per person, `cap`, `remaining` (null without a
    cap), and `epsilon` at `delta`, by the tight conversion, and `exact_epsilon` by the exact curve
    of all draws, missing where it is not known or not smaller; it holds for runs that were planned
    before the first result. Raises SpineflowError for a missing ledger.
    """
    file = Path(path)
    if not file.exists():
        raise InputRefused(f"{file}: there is no such ledger; make it with make_ledger.")
    spent = summary(open_ledger(file, must_exist=True), is_exact=True)["datasets"]
    rows = [
        {
            "dataset": name,
            "rho": float(Fraction(own["rho"])),
            "cap": _number(own["cap"]),
            "remaining": _number(own["remaining"]),
            "epsilon": float(own["epsilon"]["tight"]),
            "exact_epsilon": own["epsilon"]["exact"],
            "delta": float(Fraction(own["epsilon"]["delta"])),
        }
        for name, own in spent.items()
    ]
    columns = ["dataset", "rho", "cap", "remaining", "epsilon", "exact_epsilon", "delta"]
    return pd.DataFrame(rows, columns=columns).astype({"exact_epsilon": float})


def _number(text: str | None) -> float | None:
    return None if text is None else float(Fraction(text))
