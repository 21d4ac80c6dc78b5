"""Replicates of a product on data that may be disclosed: mean errors, and what is true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ..tasks.products.product import Figures, Product
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import replacing
from ..tasks.runs.settings import ProductSettings
from .console import page
from .searched import run_under_seed

ERRORS = "errors.csv"


def write_replicates(
    product: Product, settings: ProductSettings, n: int, folder: Path
) -> Iterator[Path]:
    """Run settings n times in this process, with the seeds 1 to n, and write their mean errors.

    `errors.csv` has for every figure its mean over the replicates and its standard deviation.
    Products that can write their true counts have them beside it. The runs themselves
    are removed. Yields the files. Raises InputRefused for confidential input: replicates are
    entered in no ledger.
    """
    if n < 1:
        raise InputRefused("--replicates must be at least 1.")
    if settings.input.confidential:
        raise InputRefused(
            "Replicates would spend privacy that no ledger records; set input.confidential = false "
            "if these data may be disclosed."
        )
    folder.mkdir(parents=True, exist_ok=True)
    if product.figures is None:
        raise InputRefused(f"There are no replicates of {product.name}.")
    found = []
    for seed in range(1, n + 1):
        with TemporaryDirectory(dir=folder) as temporary:
            run = run_under_seed(product, settings, seed, Path(temporary) / "run")
            found.append(run.errors)
    table = mean_errors(found, product.figures)
    with replacing(folder / ERRORS) as part:
        table.to_csv(part, index=False)
    page().print(table.to_string(index=False))
    yield folder / ERRORS
    if product.write_truth is not None:
        yield from product.write_truth(settings, folder)


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
