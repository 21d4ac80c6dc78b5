"""Cases that are tried in every session, and those of `make soak`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def seeds(always: int, in_all: int) -> list[Any]:
    """Parameters of a test: the first are tried in every session, the others by `make soak` and
    some of them elsewhere.
    """
    soak = (pytest.param(seed, marks=pytest.mark.soak(2)) for seed in range(always, in_all))
    return [*range(always), *soak]


def covering(*choices: Sequence[Any]) -> list[Any]:
    """Parameters of a test of several choices, all their products: each choice is tried in every
    session beside one of the others, and the rest of the products by `make soak` and as drawn.
    """
    most = max(map(len, choices))
    always = {tuple(n % len(choice) for choice in choices) for n in range(most)}
    return [
        pytest.param(
            *(choice[n] for choice, n in zip(choices, place, strict=True)),
            marks=[] if place in always else pytest.mark.soak(1),
        )
        for place in product(*(range(len(choice)) for choice in choices))
    ]
