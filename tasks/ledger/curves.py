"""The privacy curves of draws, as the ledger keeps them, and of several draws together.

A curve is written as JSON of what it is worked out from, in exact fractions: the kinds of noisy
counts, each as the power and c of its noise and the shift; the counts that every change moves; and
the choices, each with how often it stands and its alternatives. Counts are pairs of the place of a
kind and a number:

    {"kinds": [[2, "1/5", 1]], "changed": [[0, 2]], "choices": [[2, [[[0, 1]], [[0, 3]]]]]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from ..noise.distributions import IntegerDistribution
from .exact_curve import Counts, PrivacyCurve
from .loss_laws import ChangedCount


def written(curve: PrivacyCurve) -> str:
    """The text of a curve; `read` gives an equal one."""
    kinds: dict[ChangedCount, int] = {}

    def pairs(counts: Counts) -> list[tuple[int, int]]:
        return [(kinds.setdefault(kind, len(kinds)), number) for kind, number in counts.items()]

    changed = pairs(curve.changed)
    alternatives = [json.dumps([pairs(counts) for counts in choice]) for choice in curve.choices]
    choices = [(times, json.loads(choice)) for choice, times in Counter(alternatives).items()]
    listed = [(kind.noise.power, str(kind.noise.c), kind.shift) for kind in kinds]
    return json.dumps({"kinds": listed, "changed": changed, "choices": choices})


def read(text: str) -> PrivacyCurve:
    """The curve of a text of `written`.

    Raises ValueError for another text.

    >>> curve = read('{"kinds": [[2, "1/2", 1]], "changed": [[0, 2]], "choices": []}')
    >>> curve.rho
    Fraction(1, 1)
    """
    try:
        found = json.loads(text)
        kinds = [_kind(*fields) for fields in found["kinds"]]

        def counts(pairs: Iterable[tuple[int, int]]) -> Counts:
            return {kinds[place]: number for place, number in pairs}

        choices = [
            tuple(counts(pairs) for pairs in alternatives)
            for times, alternatives in found["choices"]
            for _ in range(times)
        ]
        return PrivacyCurve(counts(found["changed"]), choices)
    except (KeyError, IndexError, TypeError, ArithmeticError) as error:
        raise ValueError(f"no curve is written so: {error!r}") from error


def _kind(power: int, c: str, shift: int) -> ChangedCount:
    noise = IntegerDistribution(Fraction(c), power)
    if power not in (1, 2) or noise.c <= 0:
        raise ValueError("there is no such noise")
    return ChangedCount(noise, shift)


def composed(curves: Iterable[PrivacyCurve]) -> PrivacyCurve:
    """The curve of several draws together, whose worst choices may be made apart.

    Raises ValueError where there are more combinations of choices than are compared.
    """
    changed: Counter[ChangedCount] = Counter()
    choices = []
    for curve in curves:
        changed.update(curve.changed)
        for choice in curve.choices:
            first, *others = choice
            if others:
                choices.append(choice)
            else:
                changed.update(first)
    return PrivacyCurve(dict(changed), choices)
