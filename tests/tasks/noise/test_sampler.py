"""The right distribution is accepted and a slightly wrong one rejected, over 10^7 draws each.

Sources are seeded, so that the outcome is fixed; a fresh seed passes an accepting test with a
chance of about 0.999.
"""

from __future__ import annotations

import math
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats
from spineflow.tasks.noise.distributions import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    IntegerDistribution,
    SeededRandom,
    SystemRandom,
    noise_variance,
    random_words,
)
from spineflow.tasks.noise.sampler import CoarseFineSampler, build_table, draw_noise

from tests.seeds import covering

discrete_gaussian = partial(draw_noise, DISCRETE_GAUSSIAN)
discrete_laplace = partial(draw_noise, DISCRETE_LAPLACE)
N_DRAWS = 10**7
ACCEPT = 1e-3
REJECT = 1e-9

GAUSSIAN_PARAMETERS = [
    Fraction(1, 2),
    Fraction(1),
    Fraction(10),
    Fraction(22801, 74),
    Fraction(400),
]
LAPLACE_PARAMETERS = [Fraction(1, 2), Fraction(2), Fraction(61, 7), Fraction(40)]


def probabilities(mechanism: str, parameter: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """Values and their probabilities, in floats, out to a mass of about 1e-15."""
    if mechanism == DISCRETE_GAUSSIAN:
        reach = int(9 * math.sqrt(parameter)) + 9
        values = np.arange(-reach, reach + 1)
        weights = np.exp(-(values**2) / (2 * float(parameter)))
    else:
        reach = int(36 * parameter) + 3
        values = np.arange(-reach, reach + 1)
        weights = np.exp(-np.abs(values) / float(parameter))
    return values, weights / weights.sum()


def frequencies(draws: np.ndarray, values: np.ndarray) -> np.ndarray:
    """How often each value was drawn; all draws lie within the values."""
    counts = np.bincount(draws - values[0], minlength=values.size)
    assert counts.size == values.size
    return counts


def chi_square_p(draws: np.ndarray, values: np.ndarray, probability: np.ndarray) -> float:
    """p of the chi-square test on single values, the rare ones pooled at either end."""
    counts = frequencies(draws, values)
    common = np.flatnonzero(probability * draws.size >= 50)
    starts = [0, *common[1:], common[-1] + 1]
    observed = np.add.reduceat(counts, starts)
    expected = np.add.reduceat(probability, starts) * draws.size
    if expected[-1] < 50:
        observed = np.append(observed[:-2], observed[-2:].sum())
        expected = np.append(expected[:-2], expected[-2:].sum())
    return stats.chisquare(observed, expected * draws.size / expected.sum()).pvalue


def moment_deviations(draws: np.ndarray, values: np.ndarray, probability: np.ndarray):
    """Deviation of the first four moments from theirs, in standard errors."""
    share = frequencies(draws, values) / draws.size
    powers = [values.astype(float) ** k for k in range(9)]
    moments = [float(power @ probability) for power in powers]
    for k in range(1, 5):
        error = math.sqrt((moments[2 * k] - moments[k] ** 2) / draws.size)
        yield (powers[k] @ share - moments[k]) / error


@pytest.mark.parametrize(
    ("mechanism", "parameter"),
    [(DISCRETE_GAUSSIAN, p) for p in GAUSSIAN_PARAMETERS]
    + [(DISCRETE_LAPLACE, p) for p in LAPLACE_PARAMETERS],
    ids=str,
)
def test_draws_follow_the_distribution_and_not_its_neighbour(mechanism, parameter):
    """Threat model: a sampler that is slightly wrong."""
    expected = probabilities(mechanism, parameter)
    draws = draw_noise(mechanism, parameter, N_DRAWS, SeededRandom(11, mechanism, str(parameter)))
    assert chi_square_p(draws, *expected) > ACCEPT
    assert max(abs(deviation) for deviation in moment_deviations(draws, *expected)) < 3.5

    factor = Fraction(102, 100) if mechanism == DISCRETE_GAUSSIAN else Fraction(101, 100)
    source = SeededRandom(12, mechanism, str(parameter))
    wrong = draw_noise(mechanism, parameter * factor, N_DRAWS, source)
    assert chi_square_p(wrong, *expected) < REJECT
    assert abs(list(moment_deviations(wrong, *expected))[1]) > 6


def test_a_rounded_continuous_gaussian_is_rejected():
    expected = probabilities(DISCRETE_GAUSSIAN, Fraction(1, 2))
    continuous = np.random.default_rng(5).normal(0, math.sqrt(0.5), N_DRAWS)
    rounded = np.rint(continuous).astype(np.int64)
    assert chi_square_p(rounded, *expected) < REJECT
    assert abs(list(moment_deviations(rounded, *expected))[1]) > 6


@pytest.mark.slow
@pytest.mark.parametrize(("power", "fine_bits"), covering([1, 2], [1, 3]))
def test_coarse_and_fine_parts_make_the_distribution_value_by_value(power, fine_bits):
    """So small a scale that the rejection step often fails and often begins with gamma >= 1."""
    mechanism = DISCRETE_GAUSSIAN if power == 2 else DISCRETE_LAPLACE
    parameter = Fraction(20)
    c = 1 / (2 * parameter) if power == 2 else 1 / parameter
    coarse = IntegerDistribution(c * 2 ** (fine_bits * power), power, one_sided=True)
    sampler = CoarseFineSampler(IntegerDistribution(c, power), fine_bits, build_table(coarse))
    draws = sampler.draw(150_000, SeededRandom(13, str(power), str(fine_bits)))
    assert chi_square_p(draws, *probabilities(mechanism, parameter)) > ACCEPT
    wrong = probabilities(mechanism, parameter * Fraction(105, 100))
    assert chi_square_p(draws, *wrong) < REJECT


@pytest.mark.slow
def test_python_integers_alone_make_the_same_distribution():
    coarse = IntegerDistribution(Fraction(64, 40), 2, one_sided=True)
    distribution = IntegerDistribution(Fraction(1, 40), 2)
    sampler = CoarseFineSampler(distribution, 3, build_table(coarse))
    source = SeededRandom(14)
    draws = np.array([sampler._draw_one(source) for _ in range(20_000)])
    assert chi_square_p(draws, *probabilities(DISCRETE_GAUSSIAN, Fraction(20))) > ACCEPT
    wrong = probabilities(DISCRETE_GAUSSIAN, Fraction(30))
    assert chi_square_p(draws, *wrong) < REJECT


@pytest.mark.slow
@pytest.mark.parametrize("sigma_squared", [(1 << 20) + 1, 10**12])
def test_large_sigma(sigma_squared):
    draws = discrete_gaussian(Fraction(sigma_squared), N_DRAWS, SeededRandom(15, "large"))
    sigma = math.sqrt(sigma_squared)
    edges = np.rint(sigma * np.linspace(-4, 4, 401)).astype(np.int64)
    observed = np.histogram(draws, [-(2**62), *edges, 2**62])[0]

    def expected(sigma):
        return np.diff(stats.norm.cdf((edges - 0.5) / sigma), prepend=0, append=1) * N_DRAWS

    assert stats.chisquare(observed, expected(sigma)).pvalue > ACCEPT
    assert stats.chisquare(observed, expected(sigma * math.sqrt(1.02))).pvalue < REJECT
    residues = np.bincount(draws & 63, minlength=64)
    assert stats.chisquare(residues).pvalue > ACCEPT


@pytest.mark.slow
@pytest.mark.parametrize("scale", [257, 10**6])
def test_large_scale(scale):
    draws = discrete_laplace(Fraction(scale), N_DRAWS, SeededRandom(16, "large"))
    assert np.mean(draws == 0) == pytest.approx(math.tanh(1 / (2 * scale)), rel=0.05, abs=3e-6)
    edges = np.rint(scale * np.linspace(-6, 6, 301)).astype(np.int64)
    observed = np.histogram(draws, [-(2**62), *edges, 2**62])[0]

    def expected(scale):
        to_negative = np.exp(np.minimum(edges, 0) / scale) / (1 + math.exp(1 / scale))
        to_positive = 1 - np.exp(-np.maximum(edges, 0) / scale) / (1 + math.exp(-1 / scale))
        below = np.where(edges <= 0, to_negative, to_positive)
        return np.diff(below, prepend=0, append=1) * N_DRAWS

    assert stats.chisquare(observed, expected(scale)).pvalue > ACCEPT
    assert stats.chisquare(observed, expected(scale * 1.01)).pvalue < REJECT


def test_sigma_beyond_the_kernel_is_drawn_in_python_integers():
    sigma_squared = Fraction(2**80, 3)
    draws = discrete_gaussian(sigma_squared, 4000, SeededRandom(17)).astype(float)
    scaled = draws / math.sqrt(sigma_squared)
    assert stats.kstest(scaled, "norm").pvalue > ACCEPT
    assert stats.kstest(scaled * 1.2, "norm").pvalue < ACCEPT


def test_a_draw_beyond_64_bits_is_refused_rather_than_wrapped():
    with pytest.raises(OverflowError):
        discrete_gaussian(Fraction(2**160), 3, SeededRandom(18))


def test_tiny_parameters_give_zeros():
    for draw in (discrete_gaussian, discrete_laplace):
        assert not draw(Fraction(1, 1000), 10**6, SystemRandom()).any()
    rare = discrete_gaussian(Fraction(1, 20), N_DRAWS, SeededRandom(19))
    expected = 2 * math.exp(-10) * N_DRAWS
    assert abs(np.count_nonzero(rare) - expected) < 4 * math.sqrt(expected)


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
@pytest.mark.parametrize("parameter", [1.0, True, "1/2"])
def test_parameters_that_are_not_exact_are_refused(draw, parameter):
    with pytest.raises(TypeError, match="exact Fraction"):
        draw(parameter, 1, SystemRandom())


@pytest.mark.parametrize("parameter", [Fraction(0), Fraction(-1, 2)])
def test_parameters_that_are_not_positive_are_refused(parameter):
    with pytest.raises(ValueError, match="share of 0"):
        discrete_gaussian(parameter, 1, SystemRandom())


@pytest.mark.parametrize(
    "parameter", [Fraction(1, 50), Fraction(1, 3), Fraction(3, 2), Fraction(79, 10), Fraction(90)]
)
@pytest.mark.parametrize("power", [1, 2])
def test_variance_is_that_of_the_discrete_distribution(power, parameter):
    mechanism = DISCRETE_GAUSSIAN if power == 2 else DISCRETE_LAPLACE
    c = 1 / (2 * parameter) if power == 2 else 1 / parameter
    with localcontext() as context:
        context.prec = 40
        rate = Decimal(c.numerator) / Decimal(c.denominator)
        weights = [(-rate * x**power).exp() for x in range(1, 6000 if power == 1 else 300)]
        total = 1 + 2 * sum(weights)
        exact = 2 * sum(x * x * w for x, w in enumerate(weights, 1)) / total
    assert noise_variance(mechanism, parameter) == pytest.approx(float(exact), rel=1e-13)


WIDE = Fraction(10**12)


def draw_some(_: int = 0) -> tuple[int, ...]:
    """Eight draws wide enough never to repeat by chance."""
    return tuple(discrete_gaussian(WIDE, 8, SystemRandom()).tolist())


def test_forked_children_and_their_parent_draw_different_values():
    before = draw_some()
    with multiprocessing.get_context("fork").Pool(4) as pool:
        drawn = pool.map(draw_some, range(16), chunksize=1)
    assert len({before, draw_some(), *drawn}) == 18


def test_threads_draw_different_values():
    with ThreadPoolExecutor(4) as executor:
        drawn = list(executor.map(draw_some, range(64)))
    assert len(set(drawn)) == 64


def test_seeded_streams_repeat_and_differ_by_seed_and_label():
    def read(*key):
        return SeededRandom(*key).read(40)

    assert read(7, "persons", "Block") == read(7, "persons", "Block")
    assert len({read(7), read(8), read(7, "persons"), read(7, "persons", "Block")}) == 4


def test_seeded_stream_never_repeats_itself_between_reads():
    source = SeededRandom(3)
    words = np.concatenate([random_words(source, 100) for _ in range(50)])
    assert np.unique(words).size == words.size
