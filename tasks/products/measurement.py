"""Measuring a level: answers of its regions to queries, each with its own noise, as one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..answers.noisy import DPQUERIES_SCHEMA, DPQUERY_SUFFIX, NoisyAnswers, measured_batches
from ..ledger.charging import single_draw
from ..ledger.plan import Measure, UniversePlan
from ..noise.distributions import Noise, NoiseDraws, sum_that_fits
from ..runs.directory import RunDirectory
from ..runs.settings import ProductSettings


def publish_measures(
    run: RunDirectory,
    settings: ProductSettings,
    universe: UniversePlan,
    level: str,
    areas: np.ndarray,
    values: Mapping[str, np.ndarray],
) -> None:
    """Publish the noisy answers of a level to all queries of a plan, which are computed while their
    file is written.

    Args:
        areas: names of the level's areas.
        values: true answers `(n_areas, n)` by query.

    Raises like `single_draw` and `with_noise`.
    """
    name, n = universe.universe, len(areas)
    path, truth = run.dpqueries(name, level), [run.histogram(name)]
    with single_draw(run, settings, path, name, truth=truth, seeds=(name, level)) as drawing:

        def answers(own: Measure) -> NoisyAnswers:
            return NoisyAnswers(
                own.query + DPQUERY_SUFFIX,
                areas,
                with_noise(values[own.query], own.noise, drawing.noise, own.part),
                np.full(n, own.variance),
                np.full(n, own.part_of(universe.loss), dtype=object),
            )

        def groups() -> Iterator[Sequence[NoisyAnswers]]:
            yield [answers(own) for own in universe.measured if own.level == level]

        drawing.publish(DPQUERIES_SCHEMA, measured_batches(groups()))


def with_noise(
    values: np.ndarray, noise: Noise | None, draws: NoiseDraws, part: str = ""
) -> np.ndarray:
    """Values with independent noise on each, so that they may be negative; without noise if it is
    None. `part` is the name of the noise in the charge.

    Raises OverflowError if a value does not fit 64 bits.
    """
    if noise is None:
        return values
    return sum_that_fits(values, draws.draw(part, noise, values.size).reshape(values.shape))
