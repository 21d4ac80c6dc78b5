"""The rows of PH1 to PH8 as plain sums over one released population: post-processing alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ..ingest.areas import areas_of
from ..ingest.counts import count_people
from ..ingest.population import read_population
from ..workload.measures import MEASURES, TRUNCATION
from ..workload.plan import make_plan
from .estimate import SCHEMA, rows_of_level

EVERYBODY = 100_000
"""tau beyond any household: of a release nobody need be left out."""


def rows_of_population(folder: Path, levels: Sequence[str]) -> pa.Table:
    """All rows of a population, with the columns of a release: `estimate` is the sum or average.

    `levels` are those of the block geocode; `noisy`, `low` and `high` are null, since of what is
    summed the noise is not known here. Averages over no households are null. Raises InputRefused as
    `read_population`.
    """
    households, members, geocode = read_population(folder)
    blocks = pd.DataFrame({"block_geocode": sorted(geocode.unique())})
    areas, area_of_block = areas_of(blocks, levels)
    block = pd.Index(blocks["block_geocode"]).get_indexer(geocode)
    taus = dict.fromkeys(TRUNCATION, EVERYBODY)
    counts = count_people(households, members, area_of_block[block], taus, len(areas)).toarray()
    every = {
        (measure, level, key): Fraction(1)
        for level in levels
        for measure, own in MEASURES.items()
        for key in own.iterations
    }
    plan = make_plan(every, taus, areas.n_regions, infinite=True)
    found = []
    for level, regions in areas.regions.items():
        own = areas.summed(level, counts)
        values = {query.query_name: own[:, query.columns] for query in plan.of_level(level)}
        found.append(rows_of_level(plan, level, regions, values))
    table = pa.concat_tables(found)
    unknown = pa.array(np.full(len(table), None), pa.float64())
    for name in ("noisy", "low", "high"):
        table = table.set_column(table.schema.get_field_index(name), name, unknown)
    return table.cast(SCHEMA)
