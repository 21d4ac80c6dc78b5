"""A universe of a run, read to be compared with the truth: whole, or subspine by subspine.

Everything read here is confidential, for the histograms are. Memory is that of a subspine's
histograms and of one quantity's answers for its blocks, beside the spine and what its blocks can
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from .....geography.levels import Spine
from ....census.histograms import sum_histogram
from ....census.invariants import read_geography
from ....runs.directory import RunDirectory
from ...estimation.public_facts import known_totals, possible_types
from ...measurement.public_answers import (
    HOUSING_UNITS,
    frame_multiples,
    read_public,
    released_counts,
    units_of_run,
)
from ...paths import geography_file
from ...release.tabulations.levels import COLUMNS
from ...settings import TopdownSettings
from ...spine.files import spine_of
from ...workload.implied_types import structural_zeros
from .levels import entity_levels, levels_of_subspine
from .quantities import Quantity, quantities_of
from .subspines import Subspine, Totals, n_subspines, prediction_of, subspine_of, totals_of
from .tallies import Compared, Tallies
from .theory import Prediction

ROWS_AT_ONCE = 1 << 18
"""Areas whose possible types are worked out at a time."""


def quantities_asked(settings: TopdownSettings, universe: str) -> tuple[Quantity, ...]:
    """What the accuracy of a universe's release is measured on."""
    queries, census = settings.budget_of(universe).queries, settings.compiled_census
    return quantities_of(settings.schema_of(universe), census, queries)


def n_compared(settings: TopdownSettings, spine: Spine) -> int:
    """In how many subspines a spine is compared: in one where not all entities that are compared
    are known to lie within states, as those of summary levels do."""
    return n_subspines(spine) if settings.compiled_census.summary_levels else 1


def tallies_of_subspines(
    run: RunDirectory,
    settings: TopdownSettings,
    whole: PredictedUniverse,
    numbers: Iterable[int],
    totals: Totals,
) -> Iterator[Tallies]:
    """Compare some subspines of a universe with the truth; `totals` are `totals_of_universe`."""
    quantities = quantities_asked(settings, whole.universe)
    for number in numbers:
        # Not named, so that its memory is free before the next is read.
        yield Tallies.of(
            _compared(run, settings, whole, number, totals), quantities, settings.compiled_census
        )


@dataclass(frozen=True, eq=False)
class PredictedUniverse:
    """What is public of a universe of a run, and what its budget implies for the estimates."""

    universe: str
    rows: np.ndarray
    """(n_blocks,) the row of each block in the file of the geography."""
    type_is_possible: np.ndarray
    """(n_blocks, n_types); see `Compared`."""
    prediction: Prediction

    @property
    def spine(self) -> Spine:
        """All of it."""
        return self.prediction.spine

    @classmethod
    def read(cls, run: RunDirectory, settings: TopdownSettings, universe: str) -> PredictedUniverse:
        """Of a universe of a run. Answers that are held to an earlier release are no facts of the
        people."""
        census, schema = settings.compiled_census, settings.schema_of(universe)
        declared = replace(census.universes[universe], held=())
        spine, public = spine_of(run, universe), read_public(run)
        type_is_possible = []
        for start in range(0, len(public), ROWS_AT_ONCE):
            part = public.iloc[start : start + ROWS_AT_ONCE]
            multiples = frame_multiples(declared, part)
            type_of_cell, types = possible_types(declared, schema, multiples, len(part))
            type_is_possible.append(types)
        known = known_totals(settings, universe, spine, units_of_run(run, census, spine))
        of_blocks = spine.names[-1] in known
        prediction = Prediction(
            schema=schema,
            budget=settings.budget_of(universe),
            spine=spine,
            type_is_possible=np.concatenate(type_is_possible)[spine.block_row],
            type_of_cell=type_of_cell,
            forbidden=structural_zeros(settings, universe),
            known=None if of_blocks else next(iter(known.items()), None),
            block_totals_known=of_blocks,
        )
        compared, rows = prediction.type_is_possible, public.index.to_numpy()[spine.block_row]
        if of_blocks and HOUSING_UNITS in public:
            # Exact totals of 0 leave nothing to compare in blocks that have facilities alone.
            has_units = public[HOUSING_UNITS].to_numpy()[spine.block_row] > 0
            compared = compared & has_units[:, None]
        return cls(universe, rows, compared, prediction)


def totals_of_universe(settings: TopdownSettings, whole: PredictedUniverse) -> Totals:
    """What the prediction of each subspine needs of the others; nothing of a universe in one."""
    if n_compared(settings, whole.spine) == 1:
        return {}
    quantities = quantities_asked(settings, whole.universe)
    asked = [answer for quantity in quantities for answer in quantity.answers]
    return totals_of(whole.prediction, whole.prediction.components(asked))


def _compared(
    run: RunDirectory,
    settings: TopdownSettings,
    whole: PredictedUniverse,
    number: int,
    totals: Totals,
) -> Compared:
    universe, census = whole.universe, settings.compiled_census
    is_cut = n_compared(settings, whole.spine) > 1
    subspine = subspine_of(whole.spine, number) if is_cut else Subspine.whole(whole.spine)
    schema, n_blocks = settings.schema_of(universe), subspine.spine.n_blocks
    truth = sum_histogram(
        run.histogram(universe),
        subspine.spine.block_geocode,
        np.arange(n_blocks),
        n_groups=n_blocks,
        n_cells=schema.n_cells,
        among_others=n_blocks < whole.spine.n_blocks,
    )
    if census.summary_levels:
        geography = _geography(run, whole.rows[subspine.blocks])
        levels = levels_of_subspine(subspine.spine, geography, whole.spine)
    else:
        levels = entity_levels(subspine.spine, read_geography(geography_file(run)), census)
    return Compared(
        schema,
        truth,
        released_counts(run, universe, whole.spine.geolevels[-1], schema.n_cells, subspine.blocks),
        levels,
        whole.type_is_possible[subspine.blocks],
        whole.prediction.type_of_cell,
        prediction_of(whole.prediction, subspine, number, totals),
    )


def _geography(run: RunDirectory, rows: np.ndarray) -> pd.DataFrame:
    """Some rows of the geography, of which only the row groups that have them are read."""
    columns = ["block_geocode", *COLUMNS.values()]
    with pq.ParquetFile(geography_file(run)) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        ends = np.cumsum(sizes)
        held = np.unique(np.searchsorted(ends, rows, side="right"))
        table = file.read_row_groups(held.tolist(), columns=columns)
    before = np.concatenate([np.arange(ends[i] - sizes[i], ends[i]) for i in held])
    return table.take(np.searchsorted(before, rows)).to_pandas()
