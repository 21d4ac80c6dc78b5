"""What all tests share: the sample data beside the repository, a generated county, a server."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

import flows  # noqa: F401  Sets the environment before Prefect is imported.

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"

os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="spineflow-prefect-")
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a random tenth of the soak tests, or all of them with SPINEFLOW_SOAK=1."""
    if os.environ.get("SPINEFLOW_SOAK") == "1":
        return
    soak = [item for item in items if item.get_closest_marker("soak")]
    chosen = random.SystemRandom().sample(soak, -(-len(soak) // 10))
    for item in set(soak) - set(chosen):
        item.add_marker(pytest.mark.skip(reason="a random tenth runs; make soak runs all"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The sample data; tests that need it are skipped where it is missing."""
    if not SHARED.exists():
        pytest.skip("needs ../shared")
    return SHARED


@pytest.fixture(scope="session")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tables of a small generated county."""
    from tasks.ingest.generate import generate_county

    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=4000, seed=3)
    return folder


@pytest.fixture(scope="session")
def prefect_server():
    """One Prefect server for all flow runs of the session."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=300):
        yield
