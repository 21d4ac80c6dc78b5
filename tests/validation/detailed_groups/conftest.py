"""Finished runs of persons and of households by detailed group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory

from tests.flows.household_input import TABLES, write_detailed_households
from tests.validation.mutations import finished

Make = Callable[[str, str], RunDirectory]

EVERYTHING = """\
coterminous = true
suppress_alone_above_combination = true
allow_negative_counts = false
zero_suppression_chance = "0.95"
"""


@pytest.fixture(scope="session")
def released(groups_input: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Function from a product, or `tables`, and further settings to a run with its release.

    Persons are of two passes, or with `tables` of census tables with declared units.
    """

    def make(name: str, further: str) -> RunDirectory:
        folder = tmp_path_factory.mktemp("released")
        own = product("detailed-groups" if name == "tables" else name)
        if name == "detailed-groups":
            tables = (
                f'[input]\nparameters = "{groups_input}/params"\ndata = "{groups_input}/data"\n'
            )
        else:
            write_detailed_households(folder)
            tables = TABLES
            if name == "detailed-households":
                tables += 'groups = "groups"\n'
        text = f'{tables}confidential = false\n[privacy]\ndataset = "people"\n{further}'
        return finished(own, folder, text, "files")

    return make


@pytest.fixture(scope="session")
def persons(released: Make) -> RunDirectory:
    return released("detailed-groups", f"[mechanism]\n{EVERYTHING}")


@pytest.fixture(scope="session")
def tables(released: Make) -> RunDirectory:
    return released("tables", f"[mechanism]\nunits_are_invariant = true\n{EVERYTHING}")


@pytest.fixture(scope="session")
def households(released: Make) -> RunDirectory:
    return released("detailed-households", "[mechanism]\nallow_negative_counts = false\n")
