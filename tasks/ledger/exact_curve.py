"""The privacy curve of a composition of discrete noise, between an upper and a lower bound.

One record's change moves some noisy counts by whole numbers. A count with noise X, moved by D, has
for the outcome x the privacy loss log P(X = x) / P(X = x - D):

- discrete Gaussian, P(x) proportional to exp(-c x^2): c (D^2 - 2 D x);
- discrete Laplace, P(x) proportional to exp(-c |x|): c (|x - D| - |x|).

Both directions of a change have the same distribution of losses, as the noise is symmetric. Losses
of independent counts add up, and with L their sum the smallest delta for an epsilon is

    delta(epsilon) = E max(0, 1 - exp(epsilon - L))                       ([DiscreteGaussian2020]).

Every other count that is released has the same distribution before and after the change, and
with parameters fixed before anything is drawn the worst pairs of the parts compose, however later
counts were chosen ([OptimalAccounting2022], theorem 10).

`ledger.loss_laws` bounds the distribution of L from both sides.

*The worst change* follows from two rules, for noise of one kind whose probabilities are
log-concave, as both kinds' are. Let T_D(a) be the power of the best test of level a between X and
X + D: a larger power everywhere means a larger delta for every epsilon, and the other way round.

- A larger move never has a smaller delta. The likelihood ratio is monotone, so that the best tests
  look whether the outcome exceeds a threshold, and P(X + D > t) grows with D.
- One count that moves by D + E never has a smaller delta than two that move by D and E. Between
  neighbouring thresholds T is linear, thresholds go to thresholds, and so T_D+E = T_E(T_D). Any
  test of two counts, of level a, has a power of at most T_D(a) once the first has moved: at every
  outcome of the other it is a test of the first, and T_D is concave. By the same argument the move
  of the second takes that to T_E(T_D(a)) at most, since T_E grows.

Hence, among all changes to counts of one noise whose moves sum to at most m, moving one count by m
has the largest delta for every epsilon.

**Worst combinations.** The deltas of many combinations of parts are bounded at once, by a product
of matrices. A delta is a sum of weights w times the masses x of a law of N points. With W and S
their discrete Fourier transforms, Parseval's identity says that

    sum w x = (1/N) sum W* S,

and S is the product of the transforms of the parts. A law of many counts is wide relative to the
step of its grid, and all but its lowest frequencies are nearly 0: a hundred of them determine the
sum, and the Cauchy-Schwarz inequality bounds the rest. Each combination is split into a first and a
second half: all sums are one product of two small matrices, whereas the law of every combination
takes at least one transform of its own.

A bound here is never below the law's own, `Law.delta_upper`: it is larger by a bound on all errors,
a relative 1e-9 or so. Most of some thousand combinations are thereby shown to be no worse than the
worst, and their laws need not be computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain, combinations_with_replacement, product

import numpy as np

from ..noise.distributions import Noise, distribution_of
from .loss_laws import (
    CUT,
    LARGEST_EXPONENT,
    LOWER_ERROR,
    NOTHING,
    UNIT,
    UPPER_ERROR,
    UPPER_POINTS,
    ChangedCount,
    Grid,
    Items,
    Part,
    grid_about,
    norm_of,
)

FEW = 8
"""Number of combinations below which laws are computed rather than bounded all at once."""

FREQUENCIES = tuple(1 << power for power in range(5, 11))
"""Numbers of frequencies tried in turn."""

NEGLIGIBLE = 1e-11
"""Acceptable 2-norm of all omitted frequencies, relative to a whole of order 1."""

LARGEST_SCALE = 100.0
"""Logarithm of the largest usable factor between the weights of two laws."""

MORE = 1 + 1e-11
"""Factor that exceeds the rounding errors of common factors of laws."""

Combination = Sequence[Items]


class _Lowest:
    """A part, the lowest of its frequencies, and the 2-norm of all."""

    def __init__(self, part: Part, n_frequencies: int) -> None:
        self.part = part
        self.spectrum = part.spectrum[:n_frequencies].astype(np.complex128)
        self.norm = norm_of(abs(part.spectrum))


class _Half:
    """First or second halves of combinations.

    spectra : `(n, n_frequencies)` transforms, complex128. norms : `(n,)` bounds on the 2-norms over
    all their frequencies. log_scales, part_norms : `(n,)` sums over the parts.
    """

    def __init__(self, halves: Sequence[Sequence[_Lowest]]) -> None:
        products = [np.prod([one.spectrum for one in half], axis=0) for half in halves]
        self.spectra = np.array(products)
        # Spectra are 1 at most, but for rounding: no product has a larger norm than a factor.
        self.norms = np.array([min(one.norm for one in half) * (1 + 1e-6) for half in halves])
        self.log_scales = np.array([sum(one.part.log_scale for one in half) for half in halves])
        self.part_norms = np.array([sum(one.part.norm for one in half) for half in halves])


def deltas_at_most(grid: Grid, combinations: Sequence[Combination], epsilon: float) -> np.ndarray:
    """Bounds `(n,)` on the deltas of combinations at epsilon, each hardly larger than its law's
    upper bound; infinite where the law itself is needed.

    The laws are needed for few combinations, for a single part, on grids with all losses unmoved,
    and for laws with too many frequencies.
    """
    nothing = np.full(len(combinations), np.inf)
    if len(combinations) < FEW or grid.stride is not None or not grid.is_upper:
        return nothing
    # Equal parts are one object and compared by identity, because hashing them is slow.
    names = [tuple(map(id, combination)) for combination in combinations]
    objects = {id(items): items for combination in combinations for items in combination}
    parts = {name: grid.part(items) for name, items in objects.items()}
    n_counts = np.array([sum(parts[name].n_counts for name in one) for one in names])
    # The fewer counts, the higher both ends of a law's range of losses.
    ends = int(n_counts.argmin()), int(n_counts.argmax())
    highest, lowest = (grid.law(combinations[at]) for at in ends)
    epsilon -= max(highest.misplaced, lowest.misplaced)
    n_frequencies, rest = _frequencies(parts, names)
    apart = highest.log_scale - lowest.log_scale
    if n_frequencies is None or epsilon < highest.losses[0] or min(map(len, names)) < 2:
        return nothing
    if abs(apart) > LARGEST_SCALE:
        return nothing
    # Weights of the law of the highest losses. Losses of another law below them count as losses
    # above with a weight of 0; its weights are otherwise equal up to a factor.
    first, weights, rounding = highest.weights(epsilon)
    placed = np.zeros(grid.points)
    placed[first:] = weights
    transform = np.fft.rfft(np.roll(placed, grid.first(int(n_counts.min()))))[:n_frequencies].conj()
    transform[1:] *= 2  # Each represents two frequencies.
    lows = {name: _Lowest(part, n_frequencies) for name, part in parts.items()}
    (left, row), (right, column) = _halves(lows, names)
    totals = ((left.spectra * transform) @ right.spectra.T).real[row, column] / grid.points
    # From frequencies to masses, but for rounding errors.
    to_masses = math.sqrt(2 / grid.points) * (1 + 1e-6)
    masses = np.minimum(left.norms[row], right.norms[column]) * to_masses
    of_parts = left.part_norms[row] + right.part_norms[column]
    # Errors of transforms here and in a law, and negative masses set to 0; then errors of sums, and
    # the omitted frequencies.
    wrong = 3 * grid.error(of_parts, masses, int(n_counts.max())) + 8 * grid.points * UNIT * masses
    wrong += rest * to_masses
    scales = left.log_scales[row] + right.log_scales[column] - highest.log_scale
    beyond = lowest.beyond(epsilon) * math.exp(apart)
    found = np.exp(np.minimum(scales, LARGEST_SCALE)) * (totals + wrong * norm_of(weights) + beyond)
    found = (found * rounding + lowest.infinite) * MORE
    # There a law gives no bound, or its weights are too small for doubles relative to another's.
    is_far = (scales + highest.exponent(epsilon) > LARGEST_EXPONENT - 1) | (
        abs(scales) > LARGEST_SCALE
    )
    return np.where(is_far, np.inf, found)


def _halves(
    lows: Mapping[int, _Lowest], combinations: Sequence[tuple[int, ...]]
) -> Iterator[tuple[_Half, np.ndarray]]:
    """First halves of combinations and each combination's index among them; then second halves."""
    middles = [(len(one) + 1) // 2 for one in combinations]
    begins = [one[:middle] for one, middle in zip(combinations, middles, strict=True)]
    ends = [one[middle:] for one, middle in zip(combinations, middles, strict=True)]
    for halves in (begins, ends):
        place = {half: number for number, half in enumerate(dict.fromkeys(halves))}
        half = _Half([[lows[name] for name in one] for one in place])
        yield half, np.array([place[one] for one in halves])


def _frequencies(
    parts: dict[int, Part], combinations: Sequence[Sequence[int]]
) -> tuple[int | None, float]:
    """How many of the lowest frequencies suffice for all combinations, None if they are too many;
    and a bound on the 2-norm of the others.

    The spectrum of a combination is nowhere larger than any part's.
    """
    number = {name: k for k, name in enumerate(parts)}
    rests = np.array([[norm_of(abs(p.spectrum[n:])) for n in FREQUENCIES] for p in parts.values()])
    least = [rests[[number[name] for name in one]].min(axis=0) for one in combinations]
    worst = np.max(least, axis=0)
    enough = np.flatnonzero(worst <= NEGLIGIBLE)
    return (FREQUENCIES[enough[0]], float(worst[enough[0]])) if enough.size else (None, math.inf)


MOST_COMBINATIONS = 5_000
"""Most combinations of alternatives to compare: each takes some milliseconds."""

LEAST_C = Fraction(1, 10**10)
"""Least c of noise of P(x) proportional to exp(-c |x|^power) whose outcomes are listed."""

HALVINGS = 32
"""Bisections of the interval of an epsilon."""

ROUNDS = 8
"""Number of laws in the search for an epsilon: each is made around the previous law's result."""

NEAR = 3 / 4
"""Fraction of an epsilon around which a law is still accurate at that epsilon."""

SHARED = 2
"""Largest distance of epsilons that share a grid, in units of sqrt(2 rho), where the allowed error
is larger than `LOWER_ERROR`: the sum's deviation is about one unit, so that every epsilon is within
one deviation of the mean of the tilted law.
"""

ROUGH = 1 / 32
"""Error of an epsilon, in units of sqrt(2 rho), that is small relative to the rest."""

KNOWN_BOUNDS = 256
"""Cached upper bounds of each kind: some dozens for a run, its attributes and geolevels."""

Counts = Mapping[ChangedCount, int]
"""Number of counts of each kind that one record's change moves."""


class CurveTooExpensive(ValueError):
    """The curve exists, but computing it, or so far out, is too expensive."""


@dataclass(frozen=True, eq=False)
class PrivacyCurve:
    """delta as a function of epsilon, of releasing counts that one record's change moves.

    changed : the counts that every change moves.
    choices : further counts; the change moves one alternative's counts of each entry.
        Where a record moves from one path through a hierarchy to another, each of the two paths is
        a choice; the worst combination counts.

    Every returned number is a bound: certificates may state the upper one, and the lower one limits
    its distance from the truth. Raises ValueError for a number of counts below 1 and an entry
    without alternatives, CurveTooExpensive for more than `MOST_COMBINATIONS` combinations.

    >>> from spineflow.tasks.noise.distributions import IntegerDistribution
    >>> curve = PrivacyCurve({ChangedCount(IntegerDistribution(Fraction(1, 2), power=2)): 2})
    >>> round(curve.delta_upper(4.0), 6)  # the truth is 0.003771607489677
    0.003772
    """

    changed: Counts
    choices: Sequence[Sequence[Counts]] = ()

    def __post_init__(self) -> None:
        entries = [self.changed, *(counts for choice in self.choices for counts in choice)]
        if any(number < 1 for counts in entries for number in counts.values()):
            raise ValueError("of each kind of count there is one or more")
        if not all(self.choices):
            raise ValueError("every choice has an alternative or more")
        numbers = (math.comb(len(one) + n - 1, n) for one, n in self._alternatives.items())
        if math.prod(numbers) > MOST_COMBINATIONS:
            raise CurveTooExpensive(f"there are more than {MOST_COMBINATIONS} combinations")

    def __eq__(self, other: object) -> bool:
        """Whether all bounds are the same to the last bit: they follow from the combinations."""
        return isinstance(other, PrivacyCurve) and self._combinations == other._combinations

    def __hash__(self) -> int:
        return hash(self._combinations)

    @cached_property
    def _alternatives(self) -> Counter[tuple[Items, ...]]:
        """Sets of alternatives and the number of choices with each, sorted so that no bound depends
        on the order of the choices.
        """
        choices = (
            tuple(sorted(set(map(_items, choice)), key=_sort_key)) for choice in self.choices
        )
        return Counter(sorted(filter(any, choices), key=lambda one: [*map(_sort_key, one)]))

    @cached_property
    def _combinations(self) -> tuple[tuple[Items, ...], ...]:
        """Every combination of alternatives, up to the order of equal choices."""
        ways = [combinations_with_replacement(one, n) for one, n in self._alternatives.items()]
        common = (_items(self.changed),) if self.changed else ()
        return tuple((*common, *chain(*way)) for way in product(*ways))

    @cached_property
    def rho(self) -> Fraction:
        """rho of the zCDP that the same counts satisfy by composition, in the worst case."""

        def of(items: Items) -> Fraction:
            return sum((count.rho * number for count, number in items), NOTHING)

        chosen = (max(map(of, one)) * number for one, number in self._alternatives.items())
        return sum(chosen, of(_items(self.changed)))

    @property
    def largest_loss(self) -> float:
        """The epsilon of pure DP that the counts satisfy, rounded up; infinite with a Gaussian."""
        largest = NOTHING
        for combination in self._combinations:
            counts = [item for part in combination for item in part]
            if any(count.noise.power == 2 for count, _ in counts):
                return math.inf
            largest = max(largest, sum((c.noise.c * c.shift * n for c, n in counts), NOTHING))
        return round_up(largest)

    def delta_upper(self, epsilon: float, error: float = 0.0) -> float:
        """A delta with which (epsilon, delta)-DP holds, hardly above the smallest.

        With a larger `error` it is the delta of an epsilon smaller by at most about that much, and
        takes less time, since nearby epsilons share a grid.
        """
        if self.rho == 0 or epsilon >= self.largest_loss:
            return 0.0
        return _upper_delta(self, epsilon, error)

    def delta_lower(self, epsilon: float, error: float = LOWER_ERROR) -> float:
        """A delta, or 0, that no smaller one can replace: below it (epsilon, delta)-DP fails.

        It is the delta of one nearly worst combination, at an epsilon within about `error`; a
        larger error takes less time.
        """
        if self.rho == 0:
            return 0.0
        return _lower_delta(self, epsilon, error)

    def epsilon_upper(self, delta: Fraction | float) -> float:
        """An epsilon with which (epsilon, delta)-DP holds, hardly above the smallest.

        Raises ValueError unless 0 < delta < 1.
        """
        if not 0 < delta < 1:
            raise ValueError(f"a delta of {delta} is not between 0 and 1")
        # The double next to the fraction may lie above it; the one before that does not.
        return _upper_epsilon(self, math.nextafter(float(delta), 0.0))

    def _epsilon(self, delta: float) -> float:
        """The least epsilon found whose upper bound is not above delta.

        A law is most accurate around one epsilon: the first is computed for continuous Gaussians of
        equal rho, each next one from the previous law.
        """
        if self.rho == 0:
            return 0.0
        mu = math.sqrt(2 * self.rho)
        guess = min(_limit(mu, delta), 0.9 * self.largest_loss)
        guess, best = self._not_far_above(guess, delta), math.inf
        for _ in range(ROUNDS):
            below, found = self._epsilon_on(self._sought_on(guess), delta, guess)
            best = min(best, found)
            if abs(below - guess) <= mu / 8 or math.isinf(below):
                break
            guess = below
        if math.isinf(best):
            raise CurveTooExpensive(f"a delta of {delta} is too small to be worked out")
        return best

    def _not_far_above(self, guess: float, delta: float) -> float:
        """A guess of the epsilon at delta, lowered where a law around a smaller one permits.

        A law around an epsilon that is much too large gives no bound at smaller ones, and may give
        1 at its own. The first guess is too large where few counts with pure noise, whose losses
        are bounded, make up much of rho.
        """
        less = guess
        for _ in range(ROUNDS):
            less *= NEAR
            if self._is_surely_above(less, delta, guess):
                break
            if self._sought_on(less).worst_law.delta_upper(less) <= delta:
                guess = less
        return guess

    def _is_surely_above(self, epsilon: float, delta: float, guess: float) -> bool:
        """Whether delta at an epsilon is certainly larger, by the law around a larger guess or else
        by a cheap one with few points.

        An upper bound equals the true delta at an epsilon smaller by at most about its error: if it
        exceeds delta at an epsilon larger by twice the error, so do the true delta here and every
        upper bound.
        """
        law = self._sought_on(guess).worst_law
        if law.delta_lower(epsilon + 2 * UPPER_ERROR * guess) > delta:
            return True
        error = ROUGH * math.sqrt(2 * self.rho)
        grid = self._grid(epsilon, is_upper=True, error=error)
        if grid.points >= UPPER_POINTS:  # Not cheaper, and possibly less accurate.
            return False
        return grid.worst_law.delta_upper(epsilon + 2 * error) > delta

    def _epsilon_on(self, grid: Grid, delta: float, guess: float) -> tuple[float, float]:
        """Neighbouring epsilons on one grid: the first's bound is above delta, the second's is
        not."""
        worst = self._epsilon_by(grid.worst_law.delta_upper, delta, guess)
        others = [one for one in self._combinations if one is not grid.worst]
        while others:
            # Most combinations differ little, and one evaluation shows that they are no worse.
            bounds = deltas_at_most(grid, others, worst[1])
            looked_at = (one for one, most in zip(others, bounds, strict=True) if most > delta)
            for combination in looked_at:
                bound = grid.law(combination).delta_upper
                if bound(worst[1]) > delta:
                    worst = self._epsilon_by(bound, delta, worst[1])
                    break
            others = list(looked_at)
        return worst

    def _epsilon_by(
        self, bound: Callable[[float], float], delta: float, guess: float
    ) -> tuple[float, float]:
        """Neighbours as in `_epsilon_on`, by one bound, which is weak far from its epsilon."""
        low, high, stride = guess, guess, math.sqrt(self.rho) / 4
        if bound(guess) > delta:
            while bound(high) > delta:
                if high == self.largest_loss:
                    return low, high
                low, high = high, min(high + stride, self.largest_loss)
                stride *= 2
        else:
            while bound(low) <= delta:
                if low == 0:
                    return low, low
                low, high, stride = max(0.0, low - stride), low, 2 * stride
        return _bisect(lambda epsilon: bound(epsilon) > delta, low, high)

    def _sought_on(self, epsilon: float) -> Grid:
        """The grid for searching an epsilon near this one.

        Under a law tilted by t, of continuous Gaussians by less than epsilon / (2 rho), all errors
        count 1 + t times.
        """
        error = UPPER_ERROR * epsilon / (1 + epsilon / float(2 * self.rho))
        return self._grid(epsilon, is_upper=True, error=error)

    def _grid_near(self, epsilon: float, error: float, *, is_upper: bool) -> Grid:
        """A grid accurate around an epsilon, shared with nearby epsilons if the error permits."""
        if error > LOWER_ERROR:
            apart = SHARED * math.sqrt(2 * self.rho)
            epsilon = round(epsilon / apart) * apart
        return self._grid(epsilon, is_upper=is_upper, error=error)

    def _grid(self, epsilon: float, *, is_upper: bool, error: float = 0.0) -> Grid:
        return grid_about(self._combinations, max(epsilon, 0.0), is_upper, error)


@lru_cache(maxsize=KNOWN_BOUNDS)
def _upper_delta(curve: PrivacyCurve, epsilon: float, error: float) -> float:
    """`PrivacyCurve.delta_upper`, cached because a budget's cost is reported repeatedly."""
    grid = curve._grid_near(epsilon, error, is_upper=True)
    bounds = deltas_at_most(grid, curve._combinations, epsilon)
    worst = 0.0
    for number in np.argsort(-bounds, kind="stable"):
        if bounds[number] <= worst:
            break
        worst = max(worst, grid.law(curve._combinations[number]).delta_upper(epsilon))
    return worst


@lru_cache(maxsize=KNOWN_BOUNDS)
def _lower_delta(curve: PrivacyCurve, epsilon: float, error: float) -> float:
    """`PrivacyCurve.delta_lower`, cached too, because pages of several runs show one curve."""
    grid = curve._grid_near(epsilon, error, is_upper=False)
    return grid.worst_law.delta_lower(epsilon)


@lru_cache(maxsize=KNOWN_BOUNDS)
def _upper_epsilon(curve: PrivacyCurve, delta: float) -> float:
    """`PrivacyCurve.epsilon_upper`, cached."""
    return min(curve._epsilon(delta), curve.largest_loss)


def _bisect(is_above: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The ends of an interval after `HALVINGS` bisections of a condition that holds up to some
    number: it holds at the first end and fails at the second.
    """
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_above(middle) else (low, middle)
    return low, high


def _limit(mu: float, delta: float) -> float:
    """About the epsilon at delta of one continuous Gaussian count that moves by mu deviations.

    delta = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu).
    """

    def is_above(epsilon: float) -> bool:
        first, second = (_log_normal(sign * mu / 2 - epsilon / mu) for sign in (1, -1))
        return math.exp(first) - math.exp(epsilon + second) > delta

    most = mu * (mu / 2 + math.sqrt(-2 * math.log(max(delta, CUT))))
    return _bisect(is_above, 0.0, most)[1]


def _log_normal(x: float) -> float:
    """log Phi(x) of the standard normal law; far out by the first terms of its expansion."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    tail = math.log1p(-(x**-2) + 3 * x**-4 - 15 * x**-6)
    return -(x**2) / 2 - math.log(-x * math.sqrt(2 * math.pi)) + tail


def count_moves(moves: Iterable[tuple[Noise | None, Mapping[int, int]]]) -> Counter[ChangedCount]:
    """The counts that move, from the noise of some counts and how many of them move how far; those
    without noise are left out.
    """
    found: Counter[ChangedCount] = Counter()
    for noise, shifts in moves:
        for shift, number in shifts.items():
            if noise is not None and shift and number:
                found[ChangedCount(distribution_of(noise), shift)] += number
    return found


def known_curve(changed: Counts, choices: Sequence[Sequence[Counts]] = ()) -> PrivacyCurve | None:
    """The curve of counts as in `PrivacyCurve`; None if it is too expensive to compute.

    It is too expensive for noise wider than any useful one, and for too many combinations.
    """
    entries = [changed, *(counts for choice in choices for counts in choice)]
    if any(count.noise.c < LEAST_C for counts in entries for count in counts):
        return None
    try:
        return PrivacyCurve(changed, choices)
    except CurveTooExpensive:
        return None


def known_epsilon(curve: PrivacyCurve | None, delta: Fraction) -> float | None:
    """An upper bound on the epsilon at delta; None if unknown, as without a curve.

    Raises ValueError unless 0 < delta < 1.
    """
    try:
        return None if curve is None else curve.epsilon_upper(delta)
    except CurveTooExpensive:
        return None


def round_up(value: Fraction) -> float:
    """The double at a fraction, or the next above it.

    >>> round_up(Fraction(3, 2)), round_up(Fraction(1, 3)) > Fraction(1, 3)
    (1.5, True)
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _items(counts: Counts) -> Items:
    """Items of `counts`, sorted."""
    return tuple(sorted(counts.items(), key=lambda item: _sort_key((item,))))


def _sort_key(items: Items) -> list[tuple[int, Fraction, int, int]]:
    """Sort key of items."""
    return [(kind.noise.power, kind.noise.c, kind.shift, number) for kind, number in items]
