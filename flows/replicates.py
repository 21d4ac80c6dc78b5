"""Replicates of a product on data that may be disclosed: mean errors, and what is true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pandas as pd
from cyclopts import Parameter

from ..tasks.products.product import Figures, Product
from ..tasks.products.registry import product
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import write_text
from .arguments import AnyReplicated, Overrides, SettingsFile
from .console import page
from .searched import run_under_seed

ERRORS = "errors.csv"


def write_replicates(
    flow: Annotated[AnyReplicated, Parameter(help="what to run")],
    settings_file: SettingsFile,
    /,
    *,
    overrides: Overrides = (),
    replicates: int = 10,
    out: Path = Path("replicates"),
) -> None:
    """Run settings n times in this process, with the seeds 1 to n, and write their mean errors.

    `errors.csv` has for every figure its mean over the replicates and its standard deviation.
    Products that can write their true counts have them beside it. The runs themselves
    are removed. Raises InputRefused for confidential input: replicates are entered in no ledger.

    Args:
        replicates: number of replicates
        out: folder to write to
    """
    asked = product(flow)
    settings = asked.load(settings_file, overrides)
    if replicates < 1:
        raise InputRefused("--replicates must be at least 1.")
    if settings.input.confidential:
        raise InputRefused(
            "Replicates would spend privacy that no ledger records; set input.confidential = false "
            "if these data may be disclosed."
        )
    out.mkdir(parents=True, exist_ok=True)
    table = mean_errors_of_runs(asked, settings, replicates, out)
    write_text(out / ERRORS, table.to_csv(index=False))
    page().print(table.to_string(index=False))
    for path in (out / ERRORS, *asked.write_truth(settings, out)):
        print(f"written: {path}")


def mean_errors_of_runs(asked: Product, settings: Any, n: int, folder: Path) -> pd.DataFrame:
    """`mean_errors` of n runs of settings, which are made in a folder and removed; raises
    InputRefused for a product that has none."""
    found = []
    for seed in range(1, n + 1):
        with TemporaryDirectory(dir=folder) as temporary:
            found.append(run_under_seed(asked, settings, seed, Path(temporary) / "run").errors)
    assert asked.figures is not None, "others are refused"
    return mean_errors(found, asked.figures)


def mean_errors(found: Sequence[pd.DataFrame], of: Figures) -> pd.DataFrame:
    """Mean of every figure, and its standard deviation over replicates, row by row of their keys.

    Rows that only some replicates have, such as groups of a table that nobody got, count where
    they are.
    """
    keys, figures = list(of.keys), list(of.words)
    together = pd.concat([one[[*keys, *figures]] for one in found])
    together[figures] = together[figures].astype(float)
    by_key = together.groupby(keys, sort=False)[figures]
    deviation = by_key.std().add_suffix(", s.d.")
    return by_key.mean().join(deviation).reset_index()
