"""Laws of the sum of privacy losses on a grid, which bound it from above or from below.

*A common lattice.* Where all losses are whole multiples of one number, up to a constant, and it is
not too fine for the range, they are on a grid unmoved, and both bounds are exact up to rounding
([ExactAccounting2026] computes one release this way). Else the losses are moved to a grid, as they
are where that grid has fewer points and is accurate enough.

*Upper bound.* The losses of each count are moved to the points of a grid, each to its two
neighbours, such that the probabilities under both hypotheses are unchanged ([ConnectDots2022]).
This interpolates the curve of that count between grid points, and is above it since the curve is
convex in exp(epsilon). Dominating pairs compose, so the curve of the sum is above too, by an error
that falls with the square of the step.

*Lower bound.* Losses are rounded to the nearest point. The sum is then off by a sum of independent
errors within half a step each, which Hoeffding's inequality bounds, under the tilted law below.

*Arithmetic.* The law of the sum is a product of discrete Fourier transforms, of small grids in
extended precision where the machine has it and in doubles elsewhere. Before,
each law is tilted by exp(lambda loss) such that its mean is near the requested epsilon: the error
of the transform, an a priori bound in the 2-norm ([Higham2002], theorem 24.2), is then small
relative to the probabilities that decide. All other errors are covered by making every probability
larger by more than its rounding, and by rounding positions upwards; the mass outside the period is
bounded by Chernoff's inequality and counted in full. The upper bound is thus a theorem about
doubles of IEEE 754, for exp and log that are right to 8 units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from itertools import chain

import numpy as np

from ..noise.distributions import IntegerDistribution

NOTHING = Fraction(0)

UNIT = 2.0**-53
"""Largest relative error of one rounding."""

SUMMED = 192
"""Roundings in NumPy's pairwise sum of positive numbers: 128, and one for each halving."""

SLACK = 1e-9
"""Share of a grid step by which positions may be wrong: far more than their rounding errors."""

CUT = 1e-80
"""Probability of the omitted draws of one count, whose loss counts as infinite."""

UPPER_OUTSIDE, LOWER_OUTSIDE = 1e-25, 1e-13
"""Tilted probability of losses beyond either end of the grid, which wraps around."""

LEAST_POINTS, UPPER_POINTS = 1 << 12, 1 << 16
"""Least and most points of the grid of an upper bound, whose error falls with the square of the
step."""

LOWER_POINTS, MOST_POINTS = 1 << 14, 1 << 22
"""Least and most points of the grid of a lower bound, whose error falls with the step alone."""

FEW_POINTS = 1 << 14
"""Points of a grid up to which transforms use extended precision, if NumPy has it."""

LATTICE_POINTS = 1 << 20
"""Most points of a grid with all losses unmoved."""

LOWER_ERROR = 9e-4
"""Default tolerance of a lower bound of epsilon, if the points suffice. By default an upper bound
is as accurate as its most points allow.
"""

UPPER_ERROR = 1e-6
"""Relative tolerance of an upper bound of epsilon at a delta, where the most points or a lattice
suffice.
"""

UNLUCKY = 1e-6
"""Tilted probability that the rounding errors of a lower bound exceed their bound."""

NEWTON_STEPS, NEAR_TILT, LEAST_VARIANCE = 40, 1e-6, 1e-18
"""Largest number of steps in the search for a tilt, their relative tolerance, and the least
variance assumed where rounding leaves 0.
"""

LARGEST_EXPONENT = 300.0
"""Logarithm of the largest computed weight; beyond it there is no bound."""


@dataclass(frozen=True)
class ChangedCount:
    """A noisy count that one record's change moves by `shift`, a positive whole number.

    Raises ValueError for another shift, or noise that is not on all integers.
    """

    noise: IntegerDistribution
    shift: int = 1

    def __post_init__(self) -> None:
        if self.shift < 1 or self.noise.one_sided:
            raise ValueError("a count moves by 1 or more, under noise on all integers")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Cached, since it is needed often and fractions are slow to hash."""
        return hash((self.noise, self.shift))

    @property
    def rho(self) -> Fraction:
        """rho of the zCDP that it satisfies: c D^2 of the Gaussian, (c D)^2 / 2 of the Laplace."""
        c, squared = self.noise.c, self.shift**2
        return c * squared if self.noise.power == 2 else c**2 * squared / 2

    @property
    def offset(self) -> Fraction:
        """Common offset of all losses: they are `offset + stride k` for whole k."""
        return self.noise.c * (self.shift**2 if self.noise.power == 2 else self.shift)

    @property
    def stride(self) -> Fraction:
        """Distance of neighbouring losses."""
        return 2 * self.noise.c * (self.shift if self.noise.power == 2 else 1)

    def losses(self) -> tuple[np.ndarray, np.ndarray]:
        """The whole numbers k of the losses and their log probabilities, `(n,)`.

        For the discrete Laplace these are all, as draws beyond the two counts have equal losses.
        For the discrete Gaussian |x| beyond m is left out, with P(|X| > m) <= 2 exp(-c m^2) <=
        `CUT`, since E exp(tX) <= exp(t^2 / (4 c)).
        """
        c, d = float(self.noise.c), self.shift
        if self.noise.power == 1:
            x = np.arange(d + 1)
            # P(X <= 0) = P(X >= D) e^(cD) = 1 / (1 + e^-c), and P(X = x) = tanh(c / 2) e^(-cx).
            log_masses = math.log(math.tanh(c / 2)) - c * x
            log_masses[0] = -math.log1p(math.exp(-c))
            log_masses[-1] = log_masses[0] - c * d
            return -x, log_masses
        reach = math.ceil(math.sqrt(math.log(2 / CUT) / c)) + 1
        x = np.arange(-reach, reach + 1)
        exponents = -c * x.astype(float) ** 2
        return x, exponents - math.log(np.exp(exponents).sum())


Items = tuple[tuple[ChangedCount, int], ...]


@dataclass(frozen=True)
class Law:
    """The law of a sum of losses on a grid, tilted.

    losses, masses : arrays `(n_points,)`; the probability of a loss is its mass times
        exp(log_scale - tilt loss).
    error : bound on the 2-norm of the errors of the masses.
    wrapped : bound on the mass beyond either end of the grid, which appears at a loss smaller, or
        larger, by the length of the grid.
    infinite : probability of omitted draws.
    misplaced : bound on the errors of the losses of the grid.
    shortfall : largest excess of the grid's sum over the true one, except for a mass of `unlucky`;
        0 if it never exceeds it.
    """

    losses: np.ndarray
    masses: np.ndarray
    tilt: float
    log_scale: float
    error: float
    wrapped: float
    infinite: float
    misplaced: float
    shortfall: float
    unlucky: float

    def delta_upper(self, epsilon: float) -> float:
        """Upper bound on E max(0, 1 - exp(epsilon - L))."""
        epsilon -= self.misplaced
        if self.exponent(epsilon) > LARGEST_EXPONENT:
            return 1.0
        total, norm, _, rounding = self._sum(epsilon)
        beyond = self.beyond(epsilon)
        return min(1.0, (total + self.error * norm + beyond) * rounding + self.infinite)

    def beyond(self, epsilon: float) -> float:
        """Upper bound on the sum's part from losses off the grid."""
        beyond = self.wrapped * math.exp(self.exponent(float(self.losses[-1])))
        if epsilon < self.losses[0]:
            # Losses between epsilon and the grid have at most the weight of a loss of epsilon.
            beyond += self.wrapped * math.exp(self.exponent(epsilon))
        return beyond

    def delta_lower(self, epsilon: float) -> float:
        """Lower bound on delta; 0 where errors exceed it."""
        epsilon += self.shortfall + self.misplaced
        if self.exponent(epsilon) > LARGEST_EXPONENT:
            return 0.0
        total, norm, largest, rounding = self._sum(epsilon)
        total -= self.error * norm + self.wrapped * largest
        # No loss above epsilon has a larger weight than one at epsilon would have.
        total -= (self.wrapped + self.unlucky) * math.exp(self.exponent(epsilon)) * rounding
        return max(0.0, total / rounding)

    def exponent(self, loss: float) -> float:
        """Logarithm of the factor that turns a mass at a loss into a probability."""
        return self.log_scale - self.tilt * loss

    def weights(self, epsilon: float) -> tuple[int, np.ndarray, float]:
        """The first loss of the grid above epsilon, the weights in the sum of the masses from
        there, and a factor for rounding.
        """
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        losses = self.losses[first:]
        weights = np.exp(self.log_scale - self.tilt * losses) * -np.expm1(epsilon - losses)
        size = abs(self.log_scale) + self.tilt * float(np.abs(self.losses[[0, -1]]).max())
        return first, weights, 1 + UNIT * (8 * size + SUMMED + 64)

    def _sum(self, epsilon: float) -> tuple[float, float, float, float]:
        """The sum over the grid, its weights' 2-norm and maximum, and a factor for rounding."""
        first, weights, rounding = self.weights(epsilon)
        largest = float(weights.max(initial=0.0))
        total = float((weights * self.masses[first:]).sum())
        return total, norm_of(weights), largest, rounding


class _Kind:
    """The losses of one count, `(n,)`: positions on its lattice, floats, and log probabilities."""

    def __init__(self, count: ChangedCount) -> None:
        self.count = count
        self.positions, self.log_masses = count.losses()
        self.losses = float(count.offset) + float(count.stride) * self.positions


class _Kinds:
    """All kinds of counts of some combinations of parts, laid end to end.

    numbers : `(n_combinations, n_kinds)`, how many counts of each kind a combination has.
    starts : `(n_kinds,)`, where the losses of each kind begin in `losses` and `log_masses`.
    """

    def __init__(self, combinations: Sequence[Sequence[Items]]) -> None:
        parts = {items: number for number, items in enumerate(dict.fromkeys(chain(*combinations)))}
        place = {count: k for k, count in enumerate(dict.fromkeys(c for p in parts for c, _ in p))}
        of_part = np.zeros((len(parts), len(place)))
        for items, part in parts.items():
            for count, number in items:
                of_part[part, place[count]] = number
        used = np.zeros((len(combinations), len(parts)))
        for row, combination in enumerate(combinations):
            for items in combination:
                used[row, parts[items]] += 1
        self.kinds = tuple(map(_Kind, place))
        self.numbers = used @ of_part
        self.losses = np.concatenate([kind.losses for kind in self.kinds])
        self.log_masses = np.concatenate([kind.log_masses for kind in self.kinds])
        self.starts = np.cumsum([0, *(len(kind.losses) for kind in self.kinds[:-1])])

    @cached_property
    def lattice(self) -> Fraction:
        """The largest number of which the strides of all losses are whole multiples."""
        strides = [kind.count.stride for kind in self.kinds]
        denominator = math.lcm(*(stride.denominator for stride in strides))
        return Fraction(math.gcd(*(int(stride * denominator) for stride in strides)), denominator)

    def log_moments(self, t: float) -> np.ndarray:
        """log E exp(t loss) of one count of each kind, `(n_kinds,)`."""
        return self._tilted(t)[1]

    def moments(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the loss of one count of each kind, under the law tilted by t."""
        masses, _ = self._tilted(t)
        means = np.add.reduceat(masses * self.losses, self.starts)
        squares = masses * (self.losses - self._spread(means)) ** 2
        return means, np.add.reduceat(squares, self.starts)

    def _tilted(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities under the laws tilted by t, end to end, and `log_moments`."""
        exponents = t * self.losses + self.log_masses
        largest = np.maximum.reduceat(exponents, self.starts)
        weights = np.exp(exponents - self._spread(largest))
        totals = np.add.reduceat(weights, self.starts)
        return weights / self._spread(totals), largest + np.log(totals)

    def _spread(self, of_kinds: np.ndarray) -> np.ndarray:
        return np.repeat(of_kinds, self._lengths)

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.diff(self.starts, append=len(self.losses))


@dataclass(frozen=True, eq=False)
class Part:
    """One count or some together, on a grid: the transform of their tilted law, and its errors.

    base : constant part of their losses, left out of positions on the grid.
    log_scale : log of the factor that tilting divided by.
    norm : sum of the 2-norms of the counts' laws.
    mean_rounding : mean reduction of the loss by rounding to the grid, under the tilted law.
    """

    spectrum: np.ndarray
    base: float
    log_scale: float
    norm: float
    n_counts: int
    mean_rounding: float


@dataclass(frozen=True, eq=False)
class Grid:
    """A tilt, and points at whole multiples of a step from `low`, that hold the law of a loss.

    stride : the lattice that contains the losses; None where they are moved to the grid.
    outside : bound on the tilted probability of losses outside the grid.
    kinds : the losses of every kind of count.
    worst : the combination of parts with approximately the largest delta near the target epsilon.
    """

    tilt: float
    low: float
    step: float
    points: int
    stride: Fraction | None
    outside: float
    is_upper: bool
    kinds: Mapping[ChangedCount, _Kind]
    worst: tuple[Items, ...]
    parts: dict[Items, Part] = field(default_factory=dict)
    ones: dict[ChangedCount, Part] = field(default_factory=dict)

    def law(self, combination: Sequence[Items]) -> Law:
        """The law of the sum of the losses of all parts."""
        parts = [self.part(items) for items in combination]
        spectrum = reduce(np.multiply, [part.spectrum for part in parts])
        n_counts = sum(part.n_counts for part in parts)
        base = sum(part.base for part in parts)
        first = self.first(n_counts, base)
        found = np.maximum(np.fft.irfft(spectrum, self.points), 0.0).astype(np.float64, copy=False)
        masses = np.roll(found, -first)
        moved = 0.0 if self.stride else 2 * self.tilt * self.step * n_counts
        losses = base + self.step * (first + np.arange(self.points))
        shortfall, is_rounded = 0.0, not (self.is_upper or self.stride)
        if is_rounded:
            # Hoeffding: independent errors, each within an interval as long as a step.
            reach = self.step * math.sqrt(n_counts * math.log(1 / UNLUCKY) / 2)
            mean = sum(part.mean_rounding for part in parts)
            shortfall = reach - mean + 2 * SLACK * self.step * n_counts
        return Law(
            losses=losses,
            masses=masses,
            tilt=self.tilt,
            # Masses were tilted by losses without their base.
            log_scale=sum(part.log_scale for part in parts) + self.tilt * base,
            error=self.error(sum(part.norm for part in parts), norm_of(masses), n_counts),
            wrapped=self.outside * math.exp(min(moved + 1, 700.0)),
            infinite=n_counts * CUT,
            misplaced=8 * UNIT * (abs(base) + float(np.abs(losses[[0, -1]]).max())),
            shortfall=shortfall,
            unlucky=UNLUCKY if is_rounded else 0.0,
        )

    @property
    def worst_law(self) -> Law:
        """The law of the worst combination."""
        return self.law(self.worst)

    def first(self, n_counts: int, base: float = 0.0) -> int:
        """The multiple of the step at which the masses of so many counts begin, less their base."""
        return math.floor((self.low - base) / self.step) - (1 if self.stride else n_counts + 1)

    def error(self, of_parts: float, of_masses: float, n_counts: int) -> float:
        """Bound on the 2-norm of the errors of masses, by the sum of the 2-norms of the laws of so
        many counts, and the 2-norm of the masses themselves.

        A transform of 2^k points is wrong by 7 k units of its 2-norm at most; spectra are at most
        1, so that errors of one count reach the sum undiminished, but not larger. A product of two
        spectra is wrong by 3 units.
        """
        levels = math.log2(self.points)
        error = of_parts + of_masses * (1 + n_counts / levels)
        return error * 1.01 * 7 * 0.5 * float(np.finfo(self._real).eps) * levels

    def part(self, items: Items) -> Part:
        """Some counts on this grid, cached."""
        if items not in self.parts:
            self.parts[items] = self._part(items)
        return self.parts[items]

    @property
    def _real(self) -> type[np.floating]:
        """Floating-point type of the transforms: extended precision on small grids, where its
        slowness is acceptable.
        """
        return np.longdouble if self.points <= FEW_POINTS else np.float64

    def _part(self, items: Items) -> Part:
        spectrum = np.ones(self.points // 2 + 1, np.result_type(self._real, np.complex64))
        base, log_scale, norm, mean_rounding = NOTHING, 0.0, 0.0, 0.0
        for count, number in items:
            one = self._one(count)
            # NumPy takes as long for a power of 1 as for any other.
            spectrum *= one.spectrum if number == 1 else one.spectrum**number
            base += count.offset * number if self.stride else 0
            log_scale += number * one.log_scale
            norm += number * one.norm
            mean_rounding += number * one.mean_rounding
        n_counts = sum(number for _, number in items)
        return Part(spectrum, float(base), log_scale, norm, n_counts, mean_rounding)

    def _one(self, count: ChangedCount) -> Part:
        """One count on this grid, without its base; cached, as several parts may have it, unless
        the grids would take gigabytes.
        """
        if count in self.ones:
            return self.ones[count]
        one = self._placed(self.kinds[count])
        if self.points <= LATTICE_POINTS:
            self.ones[count] = one
        return one

    def _placed(self, kind: _Kind) -> Part:
        log_masses = kind.log_masses
        if self.stride:
            place = kind.positions * float(kind.count.stride / self.stride)
        elif self.is_upper:
            place, log_masses = _dominating_pair(kind.losses, log_masses, self.step)
        else:
            place = np.rint(kind.losses / self.step)
        exponents = self.tilt * self.step * place + log_masses
        log_total = float(exponents.max() + np.log(np.exp(exponents - exponents.max()).sum()))
        # Three roundings of every term, and roundings of a law's sum and of terms added at one
        # point.
        size = self.tilt * self.step * np.abs(place) + np.abs(log_masses) + abs(log_total)
        together = len(place) / (1 if self.stride is None else self.points)
        relative = UNIT * (8 * size + SUMMED + together + 64)
        tilted = np.exp(exponents - log_total)
        tilted *= 1 + relative if self.is_upper else 1 - relative
        is_rounded = self.stride is None and not self.is_upper
        mean_rounding = float(tilted @ (kind.losses - self.step * place)) if is_rounded else 0.0
        folded = np.bincount(np.mod(place, self.points).astype(np.int64), tilted, self.points)
        spectrum = np.fft.rfft(folded.astype(self._real, copy=False))
        return Part(spectrum, 0.0, log_total, norm_of(folded), 1, mean_rounding)


_kinds_of = lru_cache(maxsize=4)(_Kinds)
"""Cached, since a curve is evaluated at several epsilons."""


@lru_cache(maxsize=4)
def grid_about(
    combinations: tuple[tuple[Items, ...], ...],
    epsilon: float,
    is_upper: bool,
    error: float,
) -> Grid:
    """A grid for every combination of parts, on which the mean of the worst is about epsilon.

    error : approximate tolerance of a bound of epsilon; for an upper one, 0 means the least
        possible.
    """
    kinds = _kinds_of(combinations)
    own = {kind.count: kind for kind in kinds.kinds}
    tilt, worst = _tilt(kinds, epsilon)
    outside = UPPER_OUTSIDE if is_upper else LOWER_OUTSIDE
    low, high = _ends(kinds, tilt, outside)
    stride = kinds.lattice
    n_counts = int(kinds.numbers.sum(axis=1).max())
    points = (_upper_points if is_upper else _lower_points)(n_counts, high - low, error)
    points = max(points, _power_of_two(16 * n_counts))
    # As in `_upper_points`, unless these would be too many.
    is_near = n_counts * ((high - low) / points) ** 2 / 8 <= error
    is_rough = is_near if is_upper else error > LOWER_ERROR
    if high - low < float(stride) * (points if is_rough else LATTICE_POINTS):
        points = _power_of_two((high - low) / float(stride) + 4)
        step = float(stride)
        return Grid(tilt, low, step, points, stride, outside, is_upper, own, combinations[worst])
    # Every count may be off by a step, upwards or downwards.
    step = (high - low) / (points - 2 * n_counts - 4)
    return Grid(tilt, low, step, points, None, outside, is_upper, own, combinations[worst])


def _dominating_pair(
    losses: np.ndarray, log_masses: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """Grid points and the logarithms of their masses, `(2 n,)`: a pair that dominates the losses'.

    A loss between k and k + 1 steps is split between both ends, in shares that keep the sums of P
    and of P exp(-loss) = Q. Both shares are made larger than positions can be wrong by; where a
    position comes out a point too high, its mass has moved upwards, which only makes delta larger.
    """
    position = losses / step
    slack = max(SLACK, 8 * UNIT * float(np.abs(position).max()))
    low = np.floor(position)
    upper_share = np.expm1(-(position - low) * step) / math.expm1(-step)
    shares = np.concatenate([1 - upper_share, upper_share]) + 2 * slack
    return np.concatenate([low, low + 1]), np.concatenate([log_masses] * 2) + np.log(shares)


def _upper_points(n_counts: int, width: float, error: float) -> int:
    """Points, a power of two, with which an upper bound of epsilon is at most about `error` away.

    Between two points exp(loss) is replaced by its chord: a loss grows by step^2 / 8 at most.
    """
    if error == 0:
        return UPPER_POINTS
    wanted = _power_of_two(width * math.sqrt(n_counts / (8 * error)))
    return min(max(LEAST_POINTS, wanted), UPPER_POINTS)


def _lower_points(n_counts: int, width: float, error: float) -> int:
    """Points, a power of two, with which a lower bound of epsilon is about `error` away."""
    reach = width * math.sqrt(n_counts * math.log(1 / UNLUCKY) / 2)
    return min(max(LOWER_POINTS, _power_of_two(reach / error)), MOST_POINTS)


def norm_of(values: np.ndarray) -> float:
    """The 2-norm, without NumPy's own threads, which cost more than they gain here."""
    return math.sqrt(float(np.square(values).sum()))


def _power_of_two(number: float) -> int:
    return 1 << max(0, math.ceil(math.log2(number)))


def _tilt(kinds: _Kinds, epsilon: float) -> tuple[float, int]:
    """The tilt, 0 or more, with the least of Chernoff's bounds for all combinations, roughly, and
    the index of the combination with the largest bound there; any tilt would be valid.

    The bound is exp(K(t) - t epsilon) with the log moment K of the worst combination, whose mean
    loss is epsilon at the least. The mean grows with the tilt by the variance, hardly bent where
    noise is wide: Newton's method, and halving where the worst combination changes.
    """
    low, high, tilt, worst = 0.0, 2.0**20, 0.0, 0
    for _ in range(NEWTON_STEPS):
        if len(kinds.numbers) > 1:
            # At 0 all log moments are 0, and the means determine the worst.
            growth = kinds.log_moments(tilt) if tilt else kinds.moments(tilt)[0]
            worst = int((kinds.numbers @ growth).argmax())
        numbers = kinds.numbers[worst]
        mean, variance = (float(numbers @ of_kinds) for of_kinds in kinds.moments(tilt))
        low, high = (tilt, high) if mean < epsilon else (low, tilt)
        before, tilt = tilt, tilt + (epsilon - mean) / max(variance, LEAST_VARIANCE)
        if not low < tilt < high:
            tilt = (low + high) / 2 if high < 2.0**20 else 2 * low + 1
        if high == 0 or abs(tilt - before) <= NEAR_TILT * tilt:
            break
    return min(tilt, high), worst


def _ends(kinds: _Kinds, tilt: float, outside: float) -> tuple[float, float]:
    """Losses beyond which no combination's tilted law has more than `outside`, by Chernoff's bound.

    P(L > B) <= exp(K(tilt + t) - K(tilt) - t B) for every t > 0, K being the log moment, which adds
    up over counts; the ends use the best of several t. No loss is beyond the sum of the
    largest.
    """

    def widest(of_kinds: np.ndarray) -> float:
        return float((kinds.numbers @ of_kinds).max())

    at_tilt = kinds.log_moments(tilt)

    def reach(t: float) -> float:
        """Distance of the end given by t: an upper end for a positive t, else a lower one."""
        return (widest(kinds.log_moments(tilt + t) - at_tilt) - math.log(outside)) / abs(t)

    deviation = math.sqrt(max(widest(kinds.moments(tilt)[1]), LEAST_VARIANCE))
    strides = [4.0**power / deviation for power in np.arange(-1.0, 3.25, 0.25)]
    # Begin with a normal law's, where t is the bound in standard deviations.
    start = int(np.searchsorted(strides, math.sqrt(-2 * math.log(outside)) / deviation))
    high, low = (_descend([sign * t for t in strides], reach, start) for sign in (1, -1))
    largest = widest(np.maximum.reduceat(kinds.losses, kinds.starts))
    smallest = -widest(-np.minimum.reduceat(kinds.losses, kinds.starts))
    # Leave some room even around a single loss, so that the step is positive.
    room = 1e-6 * (largest - smallest)
    return max(-low, smallest) - room, min(high, largest) + room


def _descend(points: Sequence[float], value: Callable[[float], float], start: int) -> float:
    """The least value at some points, from one of them downhill: it falls, and then it grows, as
    (g(t) + C) / t does over t > 0, g being convex: it is below a level where g is below a line.
    """
    at, least = start, value(points[start])
    for stride in (1, -1):
        while 0 <= at + stride < len(points) and (found := value(points[at + stride])) <= least:
            at, least = at + stride, found
        if at != start:
            break
    return least
