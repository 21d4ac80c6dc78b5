"""Replicates of a product on data that may be disclosed: mean errors, and what is true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ..tasks.detailed_groups.settings import DetailedGroupsSettings
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import replacing
from ..tasks.runs.settings import ProductSettings
from .console import page
from .detailed_groups import write_targets
from .product import Errors, Product
from .searched import run_under_seed

ERRORS = "errors.csv"


def write_replicates(
    product: Product, settings: ProductSettings, n: int, folder: Path
) -> Iterator[Path]:
    """Run settings n times in this process, with the seeds 1 to n, and write their mean errors.

    `errors.csv` has for every figure its mean over the replicates and its standard deviation.
    Detailed groups have their true counts beside it, as `t1.csv` and `t2.csv`. The runs themselves
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
    found = []
    for seed in range(1, n + 1):
        with TemporaryDirectory(dir=folder) as temporary:
            found.append(run_under_seed(product, settings, seed, Path(temporary) / "run"))
    table = mean_errors(found)
    with replacing(folder / ERRORS) as part:
        table.to_csv(part, index=False)
    page().print(table.to_string(index=False))
    yield folder / ERRORS
    if isinstance(settings, DetailedGroupsSettings):
        yield from write_targets(settings, folder)


def mean_errors(found: list[Errors]) -> pd.DataFrame:
    """Mean of every figure, and its standard deviation over replicates, row by row of their keys.

    Rows that only some replicates have, such as groups of a table that nobody got, count where
    they are.
    """
    keys, figures = list(found[0].keys), list(found[0].figures)
    together = pd.concat([one.table[[*keys, *figures]] for one in found])
    together[figures] = together[figures].astype(float)
    by_key = together.groupby(keys, sort=False)[figures]
    deviation = by_key.std().add_suffix(", s.d.")
    return by_key.mean().join(deviation).reset_index()
