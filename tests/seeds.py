"""Seeds of cases that are drawn at random."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(always: int, in_all: int) -> list[Any]:
    """Parameters of a test: the first are tried in every session, the others by `make soak` and
    some of them elsewhere.
    """
    soak = (pytest.param(seed, marks=pytest.mark.soak(2)) for seed in range(always, in_all))
    return [*range(always), *soak]
