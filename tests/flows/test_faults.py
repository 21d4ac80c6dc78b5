"""A share of the faults of `tests.flows.faults`; `make soak` tries them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.products.registry import PRODUCTS as REGISTERED

from tests.conftest import SESSION
from tests.flows.faults import PRODUCTS, tried

pytestmark = pytest.mark.slow

SHARE = 0.1
SHARES = {"products": 0.03, "estimate": 0.05}
"""Of those that have many files, each of which starts a run that takes long."""


@pytest.mark.parametrize("name", PRODUCTS)
def test_damage_is_mended_or_named(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.stash[SESSION]["seed"]
    outcomes = list(tried([name], SHARES.get(name, SHARE), seed, tmp_path))
    assert outcomes
    assert not [f"{fault}: {outcome}" for fault, outcome in outcomes if outcome.wrong]


def test_runs_of_every_product_are_damaged() -> None:
    assert sorted(PRODUCTS) == sorted(REGISTERED)
