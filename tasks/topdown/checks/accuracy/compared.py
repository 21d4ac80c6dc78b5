"""A universe of a run, read to be compared with the truth: whole, or stretch by stretch.

Everything read here is confidential, for the histograms are. Memory is that of a stretch's
histograms and of one quantity's answers for its blocks, beside the spine and what its blocks can
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from .....geography.levels import Spine
from .....geography.texts import TextIndex
from ....census.histograms import read_histogram, sum_histogram
from ....census.invariants import (
    FACILITY_COLUMNS,
    inhabitable,
    read_geography,
    read_invariants,
)
from ....runs.directory import RunDirectory
from ...estimation.estimate import ShardInput
from ...estimation.shard_constraints import ShardConstraints, sums_of_level
from ...paths import geography_file, invariants_file, spine_folder
from ...release.declared_files import area_estimates
from ...release.microdata import PlacedBlocks
from ...release.tabulations.levels import COLUMNS
from ...settings import TopdownSettings
from ...spine.families import structural_zeros
from ...spine.files import read_spine
from ...spine.shards import shards_by_geolevel
from .levels import (
    entity_levels,
    levels_of_stretch,
)
from .quantities import Quantity, quantities_of
from .stretches import (
    STATE,
    Totals,
    n_stretches,
    prediction_of,
    states_of,
    stretch_of,
    totals_of,
)
from .tallies import Compared, Tallies
from .theory import Prediction


def quantities_asked(settings: TopdownSettings, universe: str) -> tuple[Quantity, ...]:
    """What the accuracy of a universe's release is measured on."""
    measured = settings.budget_of(universe).query_shares.values()
    queries = [name for shares in measured for name in shares]
    return quantities_of(settings.schema_of(universe), settings.compiled_census, queries)


def tallies_of_universe(
    run: RunDirectory, settings: TopdownSettings, universe: str
) -> list[Tallies]:
    """Compare a universe that is in one stretch with the truth."""
    if not settings.compiled_census.has_blocks:
        quantities = quantities_asked(settings, universe)
        compared = _declared(run, settings, universe)
        return [Tallies.of(compared, quantities, settings.compiled_census)]
    whole = PublicFacts.read(run, settings, universe)
    return list(tallies_of_stretches(run, settings, whole, [0], {}))


def tallies_of_stretches(
    run: RunDirectory,
    settings: TopdownSettings,
    whole: PublicFacts,
    numbers: Iterable[int],
    totals: Totals,
) -> Iterator[Tallies]:
    """Compare some stretches of a universe with the truth; `totals` are `totals_of_universe`."""
    quantities = quantities_asked(settings, whole.universe)
    for number in numbers:
        # Not named, so that its memory is free before the next is read.
        yield Tallies.of(
            _compared(run, settings, whole, number, totals), quantities, settings.compiled_census
        )


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """What is public of a universe, but for its estimates: what a budget implies for them."""

    universe: str
    rows: np.ndarray
    """(n_blocks,) the row of each block in the file of the geography."""
    can_have: np.ndarray
    """(n_blocks, n_types); see `Compared`."""
    prediction: Prediction

    @property
    def spine(self) -> Spine:
        """All of it."""
        return self.prediction.spine

    @classmethod
    def read(cls, run: RunDirectory, settings: TopdownSettings, universe: str) -> PublicFacts:
        """Of a universe of a run, of the census that is built in."""
        schema, spine = settings.schema_of(universe), read_spine(spine_folder(run, universe))
        columns = ["housing_units"]
        typed = settings.compiled_census.universes[universe].bounded_attribute(schema)
        if typed is not None:
            columns += FACILITY_COLUMNS
        invariants = read_invariants(invariants_file(run), with_geocodes=False)
        rows = np.flatnonzero(inhabitable(invariants))[spine.block_row]
        can_have = invariants[columns].to_numpy()[rows] > 0
        if universe == "persons" and len(columns) == 1:
            can_have = np.ones_like(can_have)
        type_of_cell = np.zeros(schema.n_cells, dtype=np.int64)
        if typed is not None:
            type_of_cell = schema.levels(typed)
        known = None
        if universe == "persons" and not settings.blocks_only and STATE in spine.names:
            known = STATE, states_of(spine)
        prediction = Prediction(
            schema=schema,
            budget=settings.budget_of(universe),
            spine=spine,
            can_have=can_have if universe == "persons" else np.ones_like(can_have),
            type_of_cell=type_of_cell,
            forbidden=structural_zeros(settings, universe),
            known=known,
            block_totals_known=universe == "units",
        )
        return cls(universe, rows, can_have, prediction)


def totals_of_universe(settings: TopdownSettings, whole: PublicFacts) -> Totals:
    """What the prediction of each stretch needs of the others; nothing of a universe in one."""
    if n_stretches(whole.spine) == 1:
        return {}
    quantities = quantities_asked(settings, whole.universe)
    asked = [answer for quantity in quantities for answer in quantity.answers]
    return totals_of(whole.prediction, whole.prediction.components(asked))


def _compared(
    run: RunDirectory,
    settings: TopdownSettings,
    whole: PublicFacts,
    number: int,
    totals: Totals,
) -> Compared:
    universe, stretch = whole.universe, stretch_of(whole.spine, number)
    schema, n_blocks = settings.schema_of(universe), stretch.spine.n_blocks
    truth = sum_histogram(
        run.histogram(universe),
        stretch.spine.block_geocode,
        np.arange(n_blocks),
        n_groups=n_blocks,
        n_cells=schema.n_cells,
        among_others=n_blocks < whole.spine.n_blocks,
    )
    estimates = PlacedBlocks.read(run, universe).estimates(run, universe, stretch.blocks)
    geography = _geography(run, whole.rows[stretch.blocks])
    return Compared(
        schema,
        truth,
        _block_estimates(estimates, stretch.spine, schema.n_cells),
        levels_of_stretch(stretch.spine, geography, whole.spine),
        whole.can_have[stretch.blocks],
        whole.prediction.type_of_cell,
        prediction_of(whole.prediction, stretch, number, totals),
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


def _block_estimates(table: pa.Table, spine: Spine, n_cells: int) -> sparse.csr_array:
    blocks = TextIndex(spine.block_geocode)
    row = blocks.positions(table["block_geocode"].combine_chunks())
    inside = row >= 0
    where = (row[inside], table["cell"].to_numpy()[inside])
    counts = table["count"].to_numpy()[inside]
    return sparse.csr_array((counts, where), shape=(spine.n_blocks, n_cells))


def _declared(run: RunDirectory, settings: TopdownSettings, universe: str) -> Compared:
    """A universe of a declared census, of which the constraint files tell the facts."""
    areas = read_geography(geography_file(run))
    schema, spine = settings.schema_of(universe), read_spine(spine_folder(run, universe))
    shards = shards_by_geolevel(spine_folder(run, universe))
    known: tuple[str, np.ndarray] | None = None
    is_total_known = False
    for level in spine.geolevels:
        inputs = (
            ShardInput.read(run, settings, universe, spine, shard, with_held=False)
            for shard in shards[level.name]
        )
        given = []
        for shard_input in inputs:
            given.append(shard_input.constraints)
            type_of_cell = shard_input.type_of_cell
        sums = _known_sums(given, len(level))
        known = known if sums is None else (level.name, sums)
        is_total_known = all(part.known_totals is not None for part in given)
    can_have = np.concatenate([part.can_have for part in given])
    released = area_estimates(run, universe, schema.n_cells, len(areas))
    return Compared(
        schema,
        read_histogram(run.histogram(universe), spine.block_geocode, n_cells=schema.n_cells),
        released[spine.block_row],
        entity_levels(spine, areas, settings.compiled_census),
        can_have,
        type_of_cell,
        Prediction(
            schema=schema,
            budget=settings.budget_of(universe),
            spine=spine,
            can_have=can_have,
            type_of_cell=type_of_cell,
            forbidden=structural_zeros(settings, universe),
            known=known,
            block_totals_known=is_total_known,
        ),
    )


def _known_sums(given: Sequence[ShardConstraints], n_geounits: int) -> np.ndarray | None:
    """The number of each geounit's unit, `(n_geounits,)`, where all units' totals are exact."""
    if all(part.known_totals is not None for part in given):
        return np.arange(n_geounits)
    found = sums_of_level(given)
    return None if found is None else found[0]
