"""Runs that the tests of the library read: small, made through its own functions."""

from __future__ import annotations

from pathlib import Path

import pytest
import spineflow

from tests.library import towns

EXACT = {"dataset": "town", "infinite": True}
"""Privacy of a run without noise, whose answers are the true ones."""


@pytest.fixture(scope="session")
def exact_town(tmp_path_factory: pytest.TempPathFactory) -> spineflow.Run:
    """A run without noise on the residents of `towns`."""
    folder = tmp_path_factory.mktemp("exact-town")
    own = towns.settings(input={"confidential": False}, privacy=EXACT)
    tables = {"residents": towns.residents(), "areas": towns.areas()}
    return spineflow.topdown(tables, own, folder / "run")


@pytest.fixture(scope="session")
def town_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a private run of the residents, `run`, and its ledger."""
    folder = tmp_path_factory.mktemp("town")
    spineflow.make_ledger(folder / "ledger.db", "3/2")
    spineflow.topdown(
        {"residents": towns.residents(), "areas": towns.areas()},
        towns.settings(),
        folder / "run",
        dataset="town",
        ledger=folder / "ledger.db",
    )
    return folder
