"""What all tests of topdown's stages share: that kernels are compiled once for all workers."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def compiled_kernels() -> None:
    """Kernels that a process of its own compiles for all workers are waited for."""
    from spineflow.tasks.topdown.estimation.kernels import wait_until_compiled

    wait_until_compiled()


@pytest.fixture(scope="session")
def facts(shared: Path) -> dict[str, Any]:
    """Facts on production's characteristics of persons and units of 2020."""
    return tomllib.loads((shared / "facts" / "dhc_2020_production.toml").read_text())
