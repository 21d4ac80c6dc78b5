"""A few of the faults of `tests.flows.faults`; `make soak` tries them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby

import pytest
from spineflow.tasks.products.product import PRODUCTS as REGISTERED

from tests.conftest import SESSION
from tests.flows.faults import CUT_SHORT, PRODUCTS, Fault, Office
from tests.flows.in_process import stages_in_process
from tests.flows.outages import PLAYS, Unplayable, World

FEW = 1
"""Faults of a product, at one of its moments, chosen by the seed of the session: each continues a
run."""


@pytest.fixture(scope="module")
def surrounded(request: pytest.FixtureRequest) -> Callable:
    """Function from a product's name to a context in which its runs find what they need."""

    @contextmanager
    def within(name: str) -> Iterator[None]:
        if name in CUT_SHORT:
            request.getfixturevalue("prefect_server")
            yield
        else:
            with stages_in_process(judged_twice=False):
                yield

    return within


@pytest.fixture(scope="module")
def office_of(surrounded, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Office]:
    """Function from a product's name to an office with its runs."""

    @cache
    def of(name: str) -> Office:
        with surrounded(name):
            # Tables are made again as the rest of a release is; `faults` has them too.
            return Office(tmp_path_factory.mktemp("office"), [name], tables=False)

    return of


def a_few(faults: Iterator[Fault], seed: str) -> list[Fault]:
    """Some at one moment, chosen by a seed, of the two or three that there are."""
    moments = [list(own) for _, own in groupby(faults, lambda fault: fault.moment)]
    assert len(moments) in (2, 3)
    chance = random.Random(seed)
    return chance.sample(chance.choice(moments), FEW)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(own, marks=[] if own == "trips" else pytest.mark.soak) for own in PRODUCTS],
)
def test_damage_is_mended_or_named(
    name: str, surrounded, office_of, request: pytest.FixtureRequest
) -> None:
    office = office_of(name)
    chosen = a_few(office.faults(name), f"{request.config.stash[SESSION]['seed']} {name}")
    with surrounded(name):
        outcomes = [(fault, office.suffered(fault)) for fault in chosen]
    assert not [f"{fault}: {outcome}" for fault, outcome in outcomes if outcome.wrong]


@pytest.mark.slow
def test_runs_of_every_product_are_damaged() -> None:
    assert sorted(PRODUCTS) == sorted(REGISTERED)


# Servers that are killed need a quiet machine: no other session draws these.
@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("outages"))
    yield made
    made.server.stop()


@pytest.mark.slow
@pytest.mark.soak(600)
@pytest.mark.parametrize("name", PLAYS)
def test_a_run_goes_on_or_is_held(world: World, name: str) -> None:
    try:
        assert PLAYS[name](world)
    except Unplayable as reason:
        pytest.skip(str(reason))
