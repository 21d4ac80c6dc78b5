"""Upper bounds of the deltas of many combinations of parts at once, by a product of matrices.

A delta is a sum of weights w times the masses x of a law of N points. With W and S their discrete
Fourier transforms, Parseval's identity says that

    sum w x = (1/N) sum W* S,

and S is the product of the transforms of the parts. A law of many counts is wide beside the step of
its grid, and all but its lowest frequencies are 0, or nearly: a hundred of them tell the sum, and
the Cauchy-Schwarz inequality bounds the rest. Combinations are told apart into what they begin and
end with: all sums of beginnings and ends are one product of two small matrices, where the law of
every combination takes a transform, and more, of its own.

A bound here is never below that of the law itself, `Law.delta_upper`: it is larger by a bound on
all errors, which is a share of about 1e-9. Most of some thousand combinations are so shown
to be no worse than the worst, and their laws need not be worked out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from .loss_laws import LARGEST_EXPONENT, UNIT, Grid, Items, Part, norm_of

FEW = 8
"""Combinations whose laws are worked out rather than bounded all at once."""

FREQUENCIES = tuple(1 << power for power in range(5, 11))
"""Numbers of frequencies that are tried."""

NEGLIGIBLE = 1e-11
"""2-norm of all further frequencies that is small enough, for one of the whole of some units."""

LARGEST_SCALE = 100.0
"""Logarithm of the largest factor between the weights of two laws that is of use."""

MORE = 1 + 1e-11
"""Factor that is more than the rounding errors of factors that laws have in common."""

Combination = Sequence[Items]


class _Lowest:
    """A part, the lowest of its frequencies, and the 2-norm of all."""

    def __init__(self, part: Part, n_frequencies: int) -> None:
        self.part = part
        self.spectrum = part.spectrum[:n_frequencies].astype(np.complex128)
        self.norm = norm_of(abs(part.spectrum))


class _Half:
    """What combinations begin or end with.

    spectra : `(n, n_frequencies)` transforms, complex128. norms : `(n,)` bounds on the 2-norms of
    all their frequencies. log_scales, part_norms : `(n,)` sums of those of the parts.
    """

    def __init__(self, halves: Sequence[Sequence[_Lowest]]) -> None:
        products = [np.prod([one.spectrum for one in half], axis=0) for half in halves]
        self.spectra = np.array(products)
        # Spectra are 1 at most, but for rounding: no product has a larger norm than a factor.
        self.norms = np.array([min(one.norm for one in half) * (1 + 1e-6) for half in halves])
        self.log_scales = np.array([sum(one.part.log_scale for one in half) for half in halves])
        self.part_norms = np.array([sum(one.part.norm for one in half) for half in halves])


def deltas_at_most(grid: Grid, combinations: Sequence[Combination], epsilon: float) -> np.ndarray:
    """For every combination a number, `(n,)`, that is no smaller than the upper bound of its law at
    epsilon, and hardly larger; infinite where the law has to be asked.

    That is so of few combinations, of one part, of grids that hold all losses as they are, and of
    laws that have too many frequencies.
    """
    nothing = np.full(len(combinations), np.inf)
    if len(combinations) < FEW or grid.stride is not None or not grid.is_upper:
        return nothing
    # Equal parts are one object, and are told apart by it: to hash them takes long.
    names = [tuple(map(id, combination)) for combination in combinations]
    objects = {id(items): items for combination in combinations for items in combination}
    parts = {name: grid.part(items) for name, items in objects.items()}
    n_counts = np.array([sum(parts[name].n_counts for name in one) for one in names])
    # The fewer counts, the higher the losses that a law has room for, and the lower.
    ends = int(n_counts.argmin()), int(n_counts.argmax())
    highest, lowest = (grid.law(combinations[at]) for at in ends)
    epsilon -= max(highest.misplaced, lowest.misplaced)
    n_frequencies, rest = _frequencies(parts, names)
    apart = highest.log_scale - lowest.log_scale
    if n_frequencies is None or epsilon < highest.losses[0] or min(map(len, names)) < 2:
        return nothing
    if abs(apart) > LARGEST_SCALE:
        return nothing
    # Weights of the law of the highest losses. What another has below them, it has above with a
    # weight of 0; and its weights are the same but for a factor.
    first, weights, rounding = highest.weights(epsilon)
    placed = np.zeros(grid.points)
    placed[first:] = weights
    transform = np.fft.rfft(np.roll(placed, grid.first(int(n_counts.min()))))[:n_frequencies].conj()
    transform[1:] *= 2  # They stand for two frequencies each.
    lows = {name: _Lowest(part, n_frequencies) for name, part in parts.items()}
    (left, row), (right, column) = _halves(lows, names)
    totals = ((left.spectra * transform) @ right.spectra.T).real[row, column] / grid.points
    # From frequencies to masses, but for rounding errors.
    to_masses = math.sqrt(2 / grid.points) * (1 + 1e-6)
    masses = np.minimum(left.norms[row], right.norms[column]) * to_masses
    of_parts = left.part_norms[row] + right.part_norms[column]
    # The errors of transforms here, those that a law counts, and masses below 0 that it makes 0;
    # then those of sums, and what is left out.
    wrong = 3 * grid.error(of_parts, masses, int(n_counts.max())) + 8 * grid.points * UNIT * masses
    wrong += rest * to_masses
    scales = left.log_scales[row] + right.log_scales[column] - highest.log_scale
    beyond = lowest.beyond(epsilon) * math.exp(apart)
    found = np.exp(np.minimum(scales, LARGEST_SCALE)) * (totals + wrong * norm_of(weights) + beyond)
    found = (found * rounding + lowest.infinite) * MORE
    # There a law says nothing, or its weights are too small for doubles beside those of another.
    is_far = (scales + highest.exponent(epsilon) > LARGEST_EXPONENT - 1) | (
        abs(scales) > LARGEST_SCALE
    )
    return np.where(is_far, np.inf, found)


def _halves(
    lows: Mapping[int, _Lowest], combinations: Sequence[tuple[int, ...]]
) -> Iterator[tuple[_Half, np.ndarray]]:
    """What combinations begin with, and of each its place there; then what they end with."""
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

    The spectrum of a combination is nowhere larger than that of any part.
    """
    number = {name: k for k, name in enumerate(parts)}
    rests = np.array([[norm_of(abs(p.spectrum[n:])) for n in FREQUENCIES] for p in parts.values()])
    least = [rests[[number[name] for name in one]].min(axis=0) for one in combinations]
    worst = np.max(least, axis=0)
    enough = np.flatnonzero(worst <= NEGLIGIBLE)
    return (FREQUENCIES[enough[0]], float(worst[enough[0]])) if enough.size else (None, math.inf)
