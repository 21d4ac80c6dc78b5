"""Measuring a run: what is charged, published, reused and refused; and what its rows tell."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.detailed_groups.ingest.ingest import (
    ingest_input,
    measured_file,
    read_shards,
    run_parameters,
    run_specification,
    tabulate,
)
from spineflow.tasks.detailed_groups.measurement import (
    has_stage_1,
    measure_tables_once,
    measure_totals_once,
    measurement_files,
    plan_of_run,
)
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.detailed_groups.workload.guarantee import curve_of_change
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.validation.outcome import Outcome

from tests.tasks.ledger.exact_charges import check_exact_charge, check_noise_of_curve

KEY = ["region_type", "region_id", "iteration_code"]
SMALL = ("mechanism.states=['44']", "mechanism.run_pr=false")


@pytest.fixture(autouse=True)
def quick_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Great Expectations takes seconds; the rules are tested elsewhere."""

    def outcomes(rules, values) -> tuple[Outcome, ...]:
        return tuple(Outcome(rule.name, rule.suite, True) for rule in rules)

    monkeypatch.setattr("spineflow.tasks.tables.value_tallies.run_suites", outcomes)


def ingested(folder: Path, groups_input: Path, *overrides: str):
    """A run of these data, counted but not charged."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(
        f'input = {{parameters = "{groups_input}/params", data = "{groups_input}/data"}}\n'
        'privacy = {dataset = "groups"}\n'
    )
    settings = load_settings(DetailedGroupsSettings, file, presets=folder, overrides=overrides)
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    start_run(
        run,
        product=settings.PRODUCT,
        settings_text=dump_settings(settings),
        stamp=settings.stamp,
    )
    ingest_input(run, settings)
    for level in run_parameters(run, settings).budgets["p"]:
        tabulate(run, *level)
    return run, settings


def measure(run: RunDirectory, settings) -> None:
    for shard in read_shards(run):
        if has_stage_1(run, shard):
            measure_totals_once(run, settings, shard)
        measure_tables_once(run, settings, "p", shard)


def measured(run: RunDirectory) -> pd.DataFrame:
    files = sorted((run.root / "measurements" / "detailed_groups").rglob("*.parquet"))
    return pd.concat([pq.read_table(file).to_pandas() for file in files], ignore_index=True)


def test_files_have_the_columns_that_others_read(measured_groups) -> None:
    run, settings = measured_groups()
    path = measured_file(run, "p", read_shards(run)[0])
    assert path.relative_to(run.root).as_posix() == (
        "measurements/detailed_groups/us/USA/1/00000.parquet"
    )
    types = {field.name: str(field.type) for field in pq.read_schema(path)}
    assert types == {
        "region_type": "string",
        "region_id": "string",
        "iteration_code": "string",
        "table": "int8",
        "total_only": "bool",
        "value": "list<element: int64 not null>",
        "variance": "double",
        "plb": "string",
    }
    frame = measured(run)
    lengths = frame["value"].map(len)
    assert (lengths == frame["table"].map({0: 1, 1: 8, 2: 18, 3: 46})).all()
    usa = frame[(frame["region_type"] == "USA") & frame["total_only"]]
    budget = run_parameters(run, settings).budgets["p"]["USA", 2]
    assert str(budget) in set(usa["plb"])


@pytest.fixture(scope="module")
def neighbors(groups_input: Path, tmp_path_factory) -> tuple[Path, Path]:
    """Two inputs: as it is, and with one person of an otherwise rare combination added."""
    folder = tmp_path_factory.mktemp("neighbors")
    for name in ("one", "other"):
        shutil.copytree(groups_input, folder / name)
    path = folder / "other" / "data" / "person-records.txt"
    lines = path.read_text().splitlines()
    state = next(line for line in lines if line.split("|")[3] == "44").split("|")
    state[8:16] = [f"{1001 + 7 * i}" for i in range(8)]
    path.write_text("\n".join([*lines, "|".join(state)]) + "\n")
    return folder / "one", folder / "other"


NEVER = ", ".join(["9000000000000000"] * 3)
TYPES = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
INFINITE_THRESHOLDS = tuple(
    f"mechanism.thresholds.{name}.{level}=[{NEVER}]" for name in TYPES for level in (1, 2)
)


@pytest.mark.parametrize("noise", ["infinite=true", "seed=3"])
def test_rows_are_those_of_a_neighbour(neighbors, tmp_path, noise: str) -> None:
    """Under infinite thresholds only noisy values differ, with noise and without."""
    frames = []
    for name, source in zip(("one", "other"), neighbors, strict=True):
        run, settings = ingested(
            tmp_path / name,
            source,
            *SMALL,
            *INFINITE_THRESHOLDS,
            f"privacy.{noise}",
            "input.confidential=false",
        )
        measure(run, settings)
        frames.append(measured(run))
        files = {path.relative_to(run.root) for path in measurement_files(run, settings)}
        assert files == {
            p.relative_to(run.root) for p in (run.root / "measurements").rglob("*.parquet")
        }
    one, other = frames
    assert one.drop(columns="value").equals(other.drop(columns="value"))
    assert not one["table"].any()
    difference = other["value"].str[0] - one["value"].str[0]
    assert set(difference) == {0, 1}
    assert (difference[one["region_type"] == "USA"]).sum() <= 2 * 9


def test_groups_of_nobody_are_measured_like_others(neighbors, tmp_path) -> None:
    """Values of groups that are empty in truth are noise, not zeros."""
    run, settings = ingested(
        tmp_path, neighbors[0], *SMALL, "privacy.seed=3", "input.confidential=false"
    )
    exact, plain = ingested(
        tmp_path / "exact",
        neighbors[0],
        *SMALL,
        "privacy.infinite=true",
        "input.confidential=false",
    )
    measure(run, settings)
    measure(exact, plain)
    frame = measured(run).merge(measured(exact), on=KEY, suffixes=("", "_true"))
    empty = frame[(frame["table"] == 0) & (frame["value_true"].map(sum) == 0)]
    assert len(empty) > 100
    assert (empty["value"].str[0] != 0).mean() > 0.5


def test_the_run_is_charged_once_with_theorem_2(groups_input: Path, tmp_path: Path) -> None:
    run, settings = ingested(tmp_path, groups_input)
    parameters = run_parameters(run, settings)
    assert parameters.passes == ("us", "pr")
    DETAILED_GROUPS.charge_run(run, settings)
    DETAILED_GROUPS.charge_run(run, settings)
    spent = summary(open_ledger(Path(settings.privacy.ledger)))["datasets"]["groups"]
    draws = spent["products"]["detailed-groups"]["draws"]
    assert len(draws) == 1
    total = max(parameters.total_of("us"), parameters.total_of("pr"))
    assert draws[0]["neighbors"] == "unbounded"
    assert Fraction(draws[0]["parameter"]) == total
    assert Fraction(spent["rho"]) == 2 * total


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
@pytest.mark.parametrize(
    "passes",
    [
        pytest.param(SMALL, id="one pass"),
        pytest.param((), id="two passes", marks=pytest.mark.soak(7)),
    ],
)
def test_the_ledger_has_the_curve_of_who_is_changed(
    groups_input: Path, tmp_path: Path, definition: str, passes: tuple[str, ...]
) -> None:
    run, settings = ingested(
        tmp_path, groups_input, *passes, f'mechanism.definition="{definition}"'
    )
    (draw,) = plan_of_run(run, settings).universes
    check_noise_of_curve(draw)
    check_exact_charge(
        lambda: DETAILED_GROUPS.charge_run(run, settings),
        Path(settings.privacy.ledger),
        curve_of_change(run_parameters(run, settings), run_specification(run)),
    )


def test_a_published_stage_is_never_drawn_again(groups_input: Path, tmp_path: Path) -> None:
    run, settings = ingested(tmp_path, groups_input, *SMALL)
    DETAILED_GROUPS.charge_run(run, settings)
    shard = next(shard for shard in read_shards(run) if shard.region_type == "TRACT")
    path = measure_totals_once(run, settings, shard)
    totals = path.read_bytes()
    measure_totals_once(run, settings, shard)
    assert path.read_bytes() == totals
    measure_tables_once(run, settings, "p", shard)
    assert path.read_bytes() == totals
    DETAILED_GROUPS.charge_run(run, settings)

    path.unlink()
    with pytest.raises(BudgetRefused, match="was published by run"):
        measure_totals_once(run, settings, shard)
    with pytest.raises(BudgetRefused, match="was published by run"):
        DETAILED_GROUPS.charge_run(run, settings)
    path.write_bytes(totals[:-1] + b"x")
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        DETAILED_GROUPS.charge_run(run, settings)


def test_stage_2_needs_the_published_outcome_of_stage_1(groups_input: Path, tmp_path: Path) -> None:
    run, settings = ingested(tmp_path, groups_input, *SMALL)
    DETAILED_GROUPS.charge_run(run, settings)
    shard = next(shard for shard in read_shards(run) if shard.region_type == "TRACT")
    with pytest.raises(FileNotFoundError):
        measure_tables_once(run, settings, "p", shard)
    assert not measured_file(run, "p", shard).exists()


def test_shards_cut_regions_and_measure_the_same(groups_input, tmp_path, monkeypatch) -> None:
    overrides = (*SMALL, "privacy.infinite=true", "input.confidential=false")
    whole, settings = ingested(tmp_path / "whole", groups_input, *overrides)
    measure(whole, settings)
    monkeypatch.setattr("spineflow.tasks.detailed_groups.ingest.ingest.GROUPS_PER_SHARD", 150)
    cut, settings = ingested(tmp_path / "cut", groups_input, *overrides)
    measure(cut, settings)
    assert len(read_shards(cut)) > len(read_shards(whole))
    frames = [measured(run).sort_values(KEY, ignore_index=True) for run in (cut, whole)]
    one, other = (frame.assign(value=frame["value"].map(tuple)) for frame in frames)
    assert one.equals(other)
