"""Implications of a budget: variances of the best linear unbiased estimates of the answers.

The best linear unbiased estimate combines all noisy measurements by weighted least squares, with
the exact declarations: the totals of the states, the types of living quarters that a block can
have, the number of housing units, and structural zeros. It knows no other bounds, is not rounded
and can be negative; it corresponds to estimation without post-processing.

In the coordinates of `tasks.topdown.estimation.query_algebra` the measurements of a universe fall
apart into independent components, in each of which a geounit has a vector of totals, one for each
core cell; `geography.variance` has their variances. An answer that counts the core cells
with weights w and the levels of the free attributes in sets of sizes k out of d has, by component,
the variance of the total with weights w, times k (d - k) / d for each free attribute that is in the
component and k^2 / d for each that is not.

No entity of a summary level extends over two states, and no geounit below the state does, so that
some states of a large spine, a subspine, can be compared with the truth one after the other, or
side by side. Their variances equal the whole spine's: the states of other subspines are represented
by the sum of their covariances, which is all that the root takes of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from .....geography.classes import ClassedAreas, ClassedSpine
from .....geography.declared import Units
from .....geography.levels import Spine
from .....geography.variance import Covariances
from ....census.queries import Schema, marginal_query
from ...estimation.query_algebra import QueryAlgebra
from ...estimation.shard_constraints import known_totals, possible_types
from ...intervals.answers import ProductAnswers
from ...measurement.public_answers import HOUSING_UNITS, frame_multiples
from ...settings import TopdownSettings
from ...spine.files import Subspine, n_subspines, subspine_of
from ...workload.budget import Budget
from ...workload.implied_types import structural_zeros
from .subjects import Answer, EntityLevel, answer_matrix

LARGEST_CORE = 32
"""Most core cells of a prediction; where structural zeros make more, they are not used."""
MOST_CORE = 60
"""Most core cells of a prediction without structural zeros; beyond, no prediction is made."""

ROUNDING = 1e-12
"""Multiplier of a variance below which it is a rounding error of 0."""
SMALLEST_VARIANCE = 1e-9
"""Lower limit of noise variances: answers that are as good as exact still have a finite weight."""


ROWS_AT_ONCE = 1 << 18
"""Areas whose possible types are computed at a time."""


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """The public part of a universe of some settings.

    row : (n_blocks,) the row of each of the spine's blocks in the files of areas.
    type_of_cell : (n_cells,) type of every cell. type_is_possible : (n_blocks, n_types) bool, types
        that no bound rules out in a block.
    known : by geolevel, a number for each of its geounits; the total over each number is exact.
    housing_units : (n_blocks,) in the census of 2020; None in a declared one.
    """

    settings: TopdownSettings
    universe: str
    spine: Spine
    row: np.ndarray
    type_of_cell: np.ndarray
    type_is_possible: np.ndarray
    known: Mapping[str, np.ndarray]
    housing_units: np.ndarray | None

    @classmethod
    def of(
        cls,
        settings: TopdownSettings,
        universe: str,
        spine: Spine,
        public: pd.DataFrame,
        units: Mapping[str, Units],
    ) -> PublicFacts:
        """From the public facts of the areas that a spine has, as `read_public`, and the declared
        `units_of_areas`. Answers fixed by an earlier release are no facts of the people."""
        schema = settings.schema_of(universe)
        declared = replace(settings.compiled_census.universes[universe], held=())
        possible = []
        for start in range(0, len(public), ROWS_AT_ONCE):
            part = public.iloc[start : start + ROWS_AT_ONCE]
            multiples = frame_multiples(declared, part)
            type_of_cell, types = possible_types(declared, schema, multiples, len(part))
            possible.append(types)
        of_2020, own = HOUSING_UNITS in public, spine.block_row
        return cls(
            settings,
            universe,
            spine,
            public.index.to_numpy()[own],
            type_of_cell,
            np.concatenate(possible)[own],
            known_totals(settings, universe, spine, units),
            public[HOUSING_UNITS].to_numpy()[own] if of_2020 else None,
        )


@dataclass(frozen=True, eq=False)
class Prediction:
    """Variances that a budget implies on a spine.

    schema, budget, spine : of one universe; the budget's noise is predicted, also where a run was
        configured to draw none.
    type_is_possible : `(n_blocks, n_types)` bool, in the order of the spine's blocks: the types of
        cells that a block can have.
    type_of_cell, forbidden : `(n_cells,)` types, and structural zeros.
    known : by geolevel, a number for each of its geounits; the total over each number is exact,
        such as totals of states, or all blocks' numbers of housing units.
    beside : for some states of a larger spine, the sum of the others' `below_root` by component,
        which is all that the root takes of them; None for a whole spine.
    """

    schema: Schema
    budget: Budget
    spine: Spine
    type_is_possible: np.ndarray
    type_of_cell: np.ndarray
    forbidden: np.ndarray
    known: Mapping[str, np.ndarray]
    beside: Mapping[int, np.ndarray] | None = None
    _covariances: dict[int, Covariances] = field(init=False, default_factory=dict)
    _areas: dict[str, tuple[np.ndarray, ClassedAreas]] = field(init=False, default_factory=dict)

    @classmethod
    def of(cls, facts: PublicFacts) -> Prediction:
        """The prediction for a universe."""
        return cls(
            facts.settings.schema_of(facts.universe),
            facts.settings.budget_of(facts.universe),
            facts.spine,
            facts.type_is_possible,
            facts.type_of_cell,
            structural_zeros(facts.settings, facts.universe),
            facts.known,
        )

    @cached_property
    def _algebra(self) -> QueryAlgebra:
        """Coordinates for the queries of the budget."""
        queries = [marginal_query(self.schema, name) for name in sorted(self.budget.queries)]
        for zeros in (self.forbidden, np.zeros_like(self.forbidden)):
            algebra = QueryAlgebra.build(self.schema, queries, self.type_of_cell, zeros)
            if len(algebra.cell_type) <= LARGEST_CORE:
                break
        return algebra

    def product(self, answers: Sequence[Answer]) -> ProductAnswers:
        """The answers in the coordinates of the budget's queries."""
        return ProductAnswers.of(self._algebra, answer_matrix(answers, self.schema).T)

    def variances(self, level: EntityLevel, answers: ProductAnswers) -> np.ndarray:
        """`(n_entities, n_answers)` variances of the answers for every entity of a level; NaN where
        there is no prediction.
        """
        found = np.full((level.n_entities, answers.n_answers), np.nan)
        if self.n_core > MOST_CORE:
            return found
        areas = self._classed_areas(level)
        found[:] = 0
        for component, own in self._factors(answers).items():
            variances = self.covariances(component).variances(areas, answers.core)[:, 0]
            variances = variances[:, answers.core_of_answer]
            found[areas.area] += np.multiply(
                variances, own, where=own != 0, out=np.zeros_like(variances)
            )
        return found

    def covariances(self, component: int) -> Covariances:
        """The covariances of a component up the spine."""
        if component not in self._covariances:
            counted = self._classed.information.toarray()
            matrices = self._matrices(component)[: counted.shape[1]]
            information = np.tensordot(counted, matrices, axes=1)
            self._covariances[component] = Covariances.of(
                self._classed,
                information[:, None],
                exact=(0,) if component == 0 else (),
                beside=None if self.beside is None else self.beside[component][:, None],
            )
        return self._covariances[component]

    def components(self, answers: ProductAnswers) -> set[int]:
        """The components in the variances of answers; none without a prediction."""
        return set() if self.n_core > MOST_CORE else set(self._factors(answers))

    def _factors(self, answers: ProductAnswers) -> dict[int, np.ndarray]:
        """(n_answers,) multipliers of the variance of each component that is not known; see the
        module's docstring."""
        each = np.arange(answers.n_answers)
        factors = zip(answers.places, answers.coupling(each, each), strict=True)
        found = {component: np.where(own > ROUNDING, own, 0.0) for component, own in factors}
        if self._is_constant_known:
            found.pop(0, None)
        return {component: found[component] for component in sorted(found)}

    @property
    def n_core(self) -> int:
        """Number of core cells."""
        return len(self._algebra.cell_type)

    @property
    def _is_constant_known(self) -> bool:
        """Whether totals of all blocks determine the first component entirely."""
        return self.spine.names[-1] in self.known and self.n_core == 1

    @cached_property
    def _classed(self) -> ClassedSpine:
        """The classes of geounits; the core cells of a block are the cells of its types that are no
        structural zeros."""
        kinds, before = [], 0
        for level in self.spine.geolevels:
            kinds.append(np.where(level.bypassed, -1, before + level.plb_share_code))
            before += len(level.plb_shares)
        return ClassedSpine.build(
            self.spine,
            kinds,
            self.type_is_possible[:, self._algebra.cell_type] & self._algebra.is_possible,
            known={} if self._is_constant_known else self.known,
            is_part=self.beside is not None,
        )

    def _classed_areas(self, level: EntityLevel) -> ClassedAreas:
        """The entities of a level by the classes of their parts."""
        entity, areas = self._areas.get(level.name, (None, None))
        if areas is None or entity is not level.entity:
            areas = self._classed.areas(level.entity)
            self._areas[level.name] = level.entity, areas
        return areas

    def _matrices(self, component: int) -> np.ndarray:
        """(kinds, n, n) information that geounits of each share of each geolevel have about the
        vectors of a component."""
        cells = np.arange(len(self._algebra.cell_type))
        found = []
        for level in self.spine.geolevels:
            matrices = np.zeros((len(level.plb_shares), len(cells), len(cells)))
            for name, query_share in self.budget.query_shares[level.name].items():
                gram = self._algebra.gram(marginal_query(self.schema, name), cells)[component]
                for code, share in enumerate(level.plb_shares):
                    if share:
                        variance = self.budget.noise(share, query_share).variance
                        matrices[code] += gram / max(variance, SMALLEST_VARIANCE)
            found.append(matrices)
        return np.concatenate(found)


Totals = Mapping[int, np.ndarray]
"""By component of a prediction, `(n_subspines, 2, k, k)`: `below_root` of every subspine."""


def totals_of(whole: Prediction, components: Collection[int]) -> Totals:
    """The totals that each subspine's prediction needs of the others, for some components."""
    nothing = dict.fromkeys(components, np.zeros((2, whole.n_core, whole.n_core)))
    totals: dict[int, list[np.ndarray]] = {component: [] for component in components}
    for number in range(n_subspines(whole.spine)):
        part = _prediction_of_part(whole, subspine_of(whole.spine, number), nothing)
        for component, own in totals.items():
            own.append(part.covariances(component).below_root[:, 0])
    return {component: np.array(own) for component, own in totals.items()}


def prediction_of(whole: Prediction, subspine: Subspine, number: int, totals: Totals) -> Prediction:
    """The prediction of a subspine, which is the whole's on its geounits, for the components whose
    totals are given."""
    if subspine.spine is whole.spine:
        return whole
    beside = {c: np.delete(own, number, axis=0).sum(axis=0) for c, own in totals.items()}
    return _prediction_of_part(whole, subspine, beside)


def _prediction_of_part(
    whole: Prediction, subspine: Subspine, beside: Mapping[int, np.ndarray]
) -> Prediction:
    known = {}
    for name, number in whole.known.items():
        own = number[subspine.positions[whole.spine.names.index(name)]]
        known[name] = np.unique(own, return_inverse=True)[1]
    return replace(
        whole,
        spine=subspine.spine,
        type_is_possible=whole.type_is_possible[subspine.blocks],
        known=known,
        beside=beside,
    )
