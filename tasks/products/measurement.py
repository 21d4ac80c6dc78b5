"""Measuring a level: answers of its regions to queries, each with its own noise, as one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from ..answers.noisy import DPQUERIES_SCHEMA, DPQUERY_SUFFIX, NoisyAnswers, measured_batches
from ..ledger.charging import single_draw
from ..ledger.plan import UniversePlan
from ..noise.draws import Noise, NoiseDraws, sum_that_fits
from ..runs.directory import RunDirectory
from ..runs.settings import ProductSettings


def publish_level(
    run: RunDirectory,
    settings: ProductSettings,
    universe: str,
    level: str,
    answers: Callable[[NoiseDraws], Sequence[NoisyAnswers]],
) -> None:
    """Publish the answers of a level, which are computed while their file is written; raises like
    `single_draw`.
    """
    path = run.dpqueries(universe, level)
    truth, seeds = [run.histogram(universe)], (universe, level)
    with single_draw(run, settings, path, universe, truth=truth, seeds=seeds) as drawing:

        def groups() -> Iterator[Sequence[NoisyAnswers]]:
            yield answers(drawing.noise)

        drawing.publish(DPQUERIES_SCHEMA, measured_batches(groups()))


def publish_measures(
    run: RunDirectory,
    settings: ProductSettings,
    universe: UniversePlan,
    level: str,
    areas: np.ndarray,
    values: Mapping[str, np.ndarray],
) -> None:
    """Publish the noisy answers of a level to all queries of a plan.

    Args:
        areas: names of the level's areas.
        values: true answers `(n_areas, n)` by query.

    Raises like `single_draw`.
    """

    def answers(draws: NoiseDraws) -> list[NoisyAnswers]:
        return [
            noisy_answers(
                own.query,
                areas,
                values[own.query],
                own.noise,
                None if universe.loss is None else universe.loss * own.share,
                draws,
                own.part,
            )
            for own in universe.measured
            if own.level == level
        ]

    publish_level(run, settings, universe.universe, level, answers)


def noisy_answers(
    query: str,
    regions: np.ndarray,
    values: np.ndarray,
    noise: Noise | None,
    loss: Fraction | None,
    draws: NoiseDraws,
    part: str,
) -> NoisyAnswers:
    """Answers `(n_regions, n)` to a query with noise, charged under the name of a part, which
    spends `loss`; raises like `with_noise`.
    """
    plb, variance = ("inf", 0.0) if noise is None else (str(loss), noise.variance)
    return NoisyAnswers(
        query + DPQUERY_SUFFIX,
        regions,
        with_noise(values, noise, draws, part),
        np.full(len(regions), variance),
        np.full(len(regions), plb, dtype=object),
    )


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
