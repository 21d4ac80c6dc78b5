"""What all tests share: the sample data beside the repository, a generated county, a server."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
import spineflow.flows  # noqa: F401  Sets the environment before Prefect is imported.

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"

_prefect_home = tempfile.TemporaryDirectory(prefix="spineflow-prefect-", ignore_cleanup_errors=True)
os.environ["PREFECT_HOME"] = _prefect_home.name
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def pytest_unconfigure() -> None:
    """Leave nothing of Prefect's behind."""
    _prefect_home.cleanup()


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
    from spineflow.tasks.topdown.ingest.generate import generate_county

    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=4000, seed=3)
    return folder


@pytest.fixture(scope="session")
def prefect_server():
    """One Prefect server for all flow runs of the session."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=300):
        yield


@pytest.fixture(scope="session")
def run_groups():
    """Function that runs a group-sizes settings file up to its checks, without Prefect."""
    from spineflow.tasks.group_sizes.estimation.run import estimate_run, estimated_counts
    from spineflow.tasks.group_sizes.ingest.run import ingest_groups
    from spineflow.tasks.group_sizes.ingest.run_files import read_plan, read_regions
    from spineflow.tasks.group_sizes.measurement.run import charge_run, measure_level
    from spineflow.tasks.group_sizes.release.tables import write_tables
    from spineflow.tasks.group_sizes.settings import GroupSizesSettings
    from spineflow.tasks.runs.directory import RunDirectory, start_run
    from spineflow.tasks.runs.settings_files import dump_settings, load_settings

    def run(file: Path, folder: Path) -> tuple[RunDirectory, GroupSizesSettings]:
        settings = load_settings(GroupSizesSettings, file, presets=file.parent)
        run = RunDirectory(folder)
        folder.mkdir(parents=True, exist_ok=True)
        start_run(
            run,
            product=settings.PRODUCT,
            settings_text=dump_settings(settings),
            stamp=settings.stamp,
        )
        ingest_groups(run, settings)
        charge_run(run, settings)
        plan, hierarchy = read_plan(run), read_regions(run)
        for level in plan.levels:
            measure_level(run, settings, level.level)
        estimate_run(run, settings)
        write_tables(
            run.unchecked_release,
            hierarchy,
            estimated_counts(run, plan, hierarchy),
            plan.smallest_size,
            is_private=settings.is_private,
        )
        return run, settings

    return run


@pytest.fixture(scope="session")
def groups_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a generated specification and persons of detailed groups, in `params`, `data`."""
    from spineflow.tasks.detailed_groups.ingest.generate import (
        generate_persons,
        generate_specification,
    )
    from spineflow.tasks.detailed_groups.ingest.parameters import read_specification

    folder = tmp_path_factory.mktemp("groups")
    states = ("44", "25", "72")
    generate_specification(folder / "params", states=states, run_pr=True)
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=6000, tracts=24, states=states, seed=2)
    return folder


@pytest.fixture(scope="session")
def measured_groups(groups_input: Path, tmp_path_factory: pytest.TempPathFactory):
    """Function from overrides of settings to a run of detailed groups that has been measured.

    Returns the run directory and the settings. Noise is repeatable; equal overrides share one run.
    """
    from functools import cache

    from spineflow.tasks.detailed_groups.ingest.run import ingest_input, run_parameters, tabulate
    from spineflow.tasks.detailed_groups.ingest.run_files import read_shards
    from spineflow.tasks.detailed_groups.measurement.run import (
        has_stage_1,
        measure_tables_once,
        measure_totals_once,
    )
    from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
    from spineflow.tasks.runs.directory import RunDirectory, start_run
    from spineflow.tasks.runs.settings_files import dump_settings, load_settings

    @cache
    def measure(*overrides: str):
        folder = tmp_path_factory.mktemp("measured-groups")
        file = folder / "settings.toml"
        file.write_text(
            f'input = {{parameters = "{groups_input}/params", data = "{groups_input}/data", '
            'confidential = false}\nprivacy = {dataset = "groups", seed = 5}\n'
        )
        settings = load_settings(DetailedGroupsSettings, file, presets=folder, overrides=overrides)
        run = RunDirectory(folder / "run")
        run.root.mkdir()
        start_run(
            run,
            product=DetailedGroupsSettings.PRODUCT,
            settings_text=dump_settings(settings),
            stamp=settings.stamp,
        )
        ingest_input(run, settings)
        for item in run_parameters(run, settings).budgets:
            tabulate(run, item.region_type, item.level)
        for shard in read_shards(run):
            if has_stage_1(run, shard):
                measure_totals_once(run, settings, shard)
            measure_tables_once(run, settings, shard)
        return run, settings

    return measure
