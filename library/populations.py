"""Tables of a released population, in which every person has a home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd


def people_in_households(
    release: str | Path, levels: Sequence[str] = ("US", "State")
) -> pd.DataFrame:
    """PH1 to PH8 of one population: people joined with their households, as plain sums.

    Args:
        release: A folder with `population_persons.parquet` and `population_units.parquet`.
        levels: US, State, County, Tract, Block_Group or Block.

    Returns:
        The rows of `supplemental_dhc`, whose `estimate` is the sum or the average; `noisy`, `low`
        and `high` are missing, and so are averages over no households. Nothing is spent.

    Raises:
        SpineflowError: The files are not there, are of another census, or do not fit.

    Example: `spineflow.people_in_households("run/release", ["County"])`.
    """
    from spineflow.tasks.supplemental_dhc.estimation import rows_of_population  # 0.6 s

    return rows_of_population(Path(release), levels).to_pandas()
