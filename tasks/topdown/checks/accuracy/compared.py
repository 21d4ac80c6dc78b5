"""The comparison of a run with the truth: whole, or in pieces that workers make side by side.

Everything read here is confidential, for the histograms are. A piece is a subspine of a universe's
spine. Its result is stored in the confidential folder, with the state of the files that it read.
The budget's implications for a subspine depend on the others: they are computed beforehand, from
public data. Memory is a subspine's histograms, one quantity's answers for its blocks, the spine and
its blocks' possible types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ....census.histograms import sum_histogram
from ....census.queries import incidence
from ....runs.directory import RunDirectory
from ....runs.objects import cached_result, state_of, store_result
from ...measurement import public_answers
from ...paths import geography_file, invariants_file, spine_folder
from ...release.tabulations.levels import COLUMNS
from ...settings import TopdownSettings
from ...spine.files import (
    RunUniverse,
    Subspine,
    n_pieces,
    n_subspines,
    released_counts,
    spine_of,
    subspine_of,
)
from . import errors, subjects, theory


def has_truth(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether the confidential histograms are still there to compare with."""
    return all(run.histogram(universe).exists() for universe in settings.run.universes)


def compared_quantities(settings: TopdownSettings, universe: str) -> tuple[subjects.Quantity, ...]:
    """The quantities by which the accuracy of a universe's release is measured."""
    queries, census = settings.budget_of(universe).queries, settings.compiled_census
    return subjects.quantities_of(settings.schema_of(universe), census, queries)


def universes_in_pieces(run: RunDirectory, settings: TopdownSettings) -> dict[str, int]:
    """The number of pieces of the universes that have several."""
    numbers = {own: n_pieces(run, settings, own) for own in settings.run.universes}
    return {universe: n for universe, n in numbers.items() if n > 1}


@dataclass(frozen=True, eq=False)
class Piece:
    """Piece `number` of `of` of the comparison of a universe."""

    run: RunDirectory
    settings: TopdownSettings
    universe: str
    number: int = 0
    of: int = 1

    @property
    def file(self) -> Path:
        """File of the piece's result."""
        return _folder(self.run) / f"{self.universe}-{self.number}-of-{self.of}.json"

    @property
    def cached(self) -> Compared | None:
        """The result of `write`, if it is still valid."""
        return cached_result(self.file, self._state)

    def write(self) -> Path:
        """Compare the piece with the truth, and store the result."""
        store_result(self.file, self._state, self.compare())
        return self.file

    def compare(self) -> Compared:
        """The errors of the piece's subspine."""
        run, settings, universe = self.run, self.settings, self.universe
        facts, census = _facts_of(run, settings, universe), settings.compiled_census
        whole, spine = theory.Prediction.of(facts), facts.spine
        known = cached_result(totals_file(run, universe), _state_of_spine(run, universe))
        totals: theory.Totals = (
            _totals_of(facts, whole)
            if known is None
            else {int(component): np.array(own) for component, own in known.items()}
        )
        number, is_cut = self.number, self.of > 1
        subspine = subspine_of(spine, number) if is_cut else Subspine.whole(spine)
        schema, n_blocks = settings.schema_of(universe), subspine.spine.n_blocks
        counts = (
            sum_histogram(
                run.histogram(universe),
                subspine.spine.block_geocode,
                np.arange(n_blocks),
                n_groups=n_blocks,
                n_cells=schema.n_cells,
                among_others=n_blocks < spine.n_blocks,
            ),
            released_counts(run, universe, spine.geolevels[-1], schema.n_cells, subspine.blocks),
        )
        columns = ["block_geocode", *COLUMNS.values()] if census.declared.summary_levels else None
        geography = _read_rows(geography_file(run), facts.row[subspine.blocks], columns)
        levels = subjects.entity_levels(subspine.spine, geography, census, spine)
        with_entities = [level for level in levels if level.n_entities]
        prediction = theory.prediction_of(whole, subspine, number, totals)
        possible = prediction.type_is_possible
        if facts.housing_units is not None and spine.names[-1] in facts.known:
            # Exact totals of 0 leave nothing to compare in blocks that have facilities alone.
            possible = possible & (facts.housing_units[subspine.blocks] > 0)[:, None]
        possible = possible.astype(np.int64)
        of_types = incidence(prediction.type_of_cell, possible.shape[1])
        records = np.asarray(counts[0].sum(axis=1)).reshape(-1, 1)
        tallies: dict[str, dict[str, errors.Columns]] = {}
        groups: dict[str, dict[str, errors.Columns]] = {}
        for quantity in compared_quantities(settings, universe):
            matrix = subjects.answer_matrix(quantity.answers, schema)
            truth, released = ((own @ matrix).toarray() for own in counts)
            product = prediction.product(quantity.answers)
            may_be = possible @ ((of_types @ matrix).toarray() > 0) > 0
            tallies[quantity.name] = {
                level.name: errors.tally(
                    level.sums(truth),
                    level.sums(released),
                    prediction.variances(level, product),
                    level.sums(may_be.astype(np.int64)) > 0,
                    level.sums(records)[:, 0],
                )
                for level in with_entities
            }
        for population, answers in subjects.redistricting_groups(schema, census).items():
            matrix = subjects.answer_matrix(answers, schema)
            truth, released = ((own @ matrix).toarray() for own in counts)
            groups[population] = {
                level.name: errors.largest_groups(level.sums(truth), level.sums(released))
                for level in with_entities
            }
        of_levels = {level.name: sorted(level.geolevels) for level in levels}
        return {"levels": of_levels, "errors": tallies, "groups": groups}

    @property
    def _state(self) -> str:
        estimates = (self.run.root / "estimates" / self.universe).rglob("*.parquet")
        files = [self.run.histogram(self.universe), *estimates]
        return state_of(self.run, [*_files_of_spine(self.run, self.universe), *files])


Compared = Mapping[str, Any]
"""Errors of a subspine: `levels`, by name the geolevels whose geounits their entities are;
`errors`, by quantity and level a tally; `groups`, by population and level `largest_groups`."""


def compute_figures(run: RunDirectory, settings: TopdownSettings) -> errors.AccuracyFigures:
    """Compare the estimates of every universe with the truth, using the results of pieces."""
    rows: list[dict[str, Any]] = []
    criterion: list[dict[str, Any]] = []
    for universe in settings.run.universes:
        of = n_pieces(run, settings, universe)
        pieces = [Piece(run, settings, universe, number, of) for number in range(of)]
        parts = [piece.cached or piece.compare() for piece in pieces]
        own = subjects.own_geolevels(spine_of(run, universe))
        for quantity in compared_quantities(settings, universe):
            answers = [answer.label for answer in quantity.answers]
            for at, tallied in _group_by_level(parts, "errors", quantity.name, own):
                head = {"universe": universe, "quantity": quantity.name} | at
                rows += errors.error_rows(tallied, head, answers)
        for population in parts[0]["groups"]:
            for at, largest in _group_by_level(parts, "groups", population, own):
                criterion.append({"population": population} | at | errors.criterion_of(largest))
    return errors.AccuracyFigures(pd.DataFrame(rows), pd.DataFrame(criterion))


def totals_file(run: RunDirectory, universe: str) -> Path:
    """File of the totals that the predictions of a universe's subspines need of each other."""
    return _folder(run) / f"{universe}-covariances.json"


def has_totals(run: RunDirectory, universe: str) -> bool:
    """Whether the result of `write_totals` is still valid."""
    return cached_result(totals_file(run, universe), _state_of_spine(run, universe)) is not None


def write_totals(run: RunDirectory, settings: TopdownSettings, universe: str) -> Path:
    """Compute the totals that the predictions of a universe's subspines need of each other."""
    state = _state_of_spine(run, universe)
    facts = _facts_of(run, settings, universe)
    store_result(totals_file(run, universe), state, _totals_of(facts, theory.Prediction.of(facts)))
    return totals_file(run, universe)


def _folder(run: RunDirectory) -> Path:
    return run.confidential / errors.FOLDER / "pieces"


def _state_of_spine(run: RunDirectory, universe: str) -> str:
    return state_of(run, _files_of_spine(run, universe))


def _files_of_spine(run: RunDirectory, universe: str) -> list[Path]:
    tables = spine_folder(run, universe).glob("*.parquet")
    files = [run.settings, geography_file(run), invariants_file(run), *tables]
    return [path for path in files if path.exists()]  # Replicates have no settings of their own.


def _group_by_level(
    parts: Sequence[Compared], kind: str, subject: str, own: Sequence[str]
) -> Iterator[tuple[dict[str, Any], errors.Columns]]:
    """The levels that have entities, with the errors or largest groups of a subject there.

    `own` are the geolevels that may have levels of their own, whose geounits are not the entities
    of another level everywhere. Where they are in one subspine, the level has the rows of the other
    there.
    """
    own_levels = {subjects.own_level(geolevel): geolevel for geolevel in own}
    of_all = {
        name: frozenset.intersection(*(frozenset(part["levels"][name]) for part in parts))
        for name in parts[0]["levels"]
        if name not in own_levels
    }
    matched = frozenset(chain(*of_all.values()))
    levels = {name: bool(geolevels) for name, geolevels in of_all.items()}
    levels |= {name: True for name, geolevel in own_levels.items() if geolevel not in matched}
    for name, on_spine in levels.items():
        found = []
        for part in parts:
            source = name
            if name not in part["levels"]:
                geolevel = own_levels[name]
                source = next(x for x, same in part["levels"].items() if geolevel in same)
            if source in part[kind][subject]:
                found.append(part[kind][subject][source])
        if found:
            yield {"level": name, "on_spine": on_spine}, errors.concatenate_columns(found)


def _facts_of(run: RunDirectory, settings: TopdownSettings, universe: str) -> theory.PublicFacts:
    """Public facts of a universe of a run."""
    own = RunUniverse(run, settings, universe)
    public, units = public_answers.read_public(run), public_answers.units_of_run(own)
    return theory.PublicFacts.of(settings, universe, own.spine, public, units)


def _totals_of(facts: theory.PublicFacts, prediction: theory.Prediction) -> theory.Totals:
    """The totals that each subspine's prediction needs of the others; empty for a single
    subspine."""
    if not facts.settings.compiled_census.declared.summary_levels or n_subspines(facts.spine) == 1:
        return {}
    quantities = compared_quantities(facts.settings, facts.universe)
    asked = [answer for quantity in quantities for answer in quantity.answers]
    return theory.totals_of(prediction, prediction.components(prediction.product(asked)))


def _read_rows(file: Path, rows: np.ndarray, columns: list[str] | None) -> pd.DataFrame:
    """Some rows of a file, in their order; reads only the row groups that have them."""
    with pq.ParquetFile(file) as source:
        sizes = [source.metadata.row_group(i).num_rows for i in range(source.num_row_groups)]
        ends = np.cumsum(sizes)
        held = np.unique(np.searchsorted(ends, rows, side="right"))
        table = source.read_row_groups(held.tolist(), columns=columns)
    before = np.concatenate([np.arange(ends[i] - sizes[i], ends[i]) for i in held])
    return table.take(np.searchsorted(before, rows)).to_pandas()
