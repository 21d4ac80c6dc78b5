"""A sound run of households passes every check; each kind of damage fails the one for it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import call_stages
from spineflow.tasks.detailed_groups.checks.expected import expected_runs
from spineflow.tasks.detailed_groups.settings import (
    DetailedGroupsSettings,
    DetailedHouseholdsSettings,
)
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.validation.detailed_groups.households import CHECKS, run_household_checks
from spineflow.validation.detailed_groups.universe import ExpectedRun

from tests.flows.household_input import TABLES, write_households
from tests.flows.in_process import judged_once

pytestmark = pytest.mark.slow

Sound = tuple[RunDirectory, Mapping[str, ExpectedRun]]


def finished(folder: Path, name: str, text: str, model) -> tuple[RunDirectory, object]:
    """A run of settings that is made in this process, to the end."""
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    settings = load_settings(model, file, presets=folder).resolved()
    run = RunDirectory(folder / name)
    run.root.mkdir()
    start_run(
        run,
        product=model.PRODUCT,
        settings_text=dump_settings(settings),
        stamp=settings.stamp,
    )
    with judged_once():
        call_stages(run, settings)
    return run, settings


@pytest.fixture(scope="module")
def input_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with a finished run of their groups."""
    folder = tmp_path_factory.mktemp("households")
    write_households(folder, persons=2500)
    tables = TABLES.replace('"params"\n', '"params"\nconfidential = false\n')
    text = f'{tables}[privacy]\ndataset = "people"\nseed = 3\n'
    finished(folder, "groups", text, DetailedGroupsSettings)
    return folder


@pytest.fixture(scope="module")
def made(input_folder: Path) -> Callable[[str, str], Sound]:
    """Function from a name and further settings to a finished run and its promise."""

    def make(name: str, further: str) -> Sound:
        tables = TABLES.replace('"params"\n', '"params"\nconfidential = false\n')
        text = f'{tables}groups = "groups"\n[privacy]\ndataset = "people"\n{further}'
        run, settings = finished(input_folder, name, text, DetailedHouseholdsSettings)
        return run, expected_runs(run, settings)

    return make


@pytest.fixture(scope="module")
def sound(made) -> Sound:
    return made("sound", "seed = 5\n[mechanism]\nallow_negative_counts = false\n")


@pytest.fixture
def damaged(sound: Sound, tmp_path: Path) -> Sound:
    """A copy of the sound run, to be damaged."""
    run, expected = sound
    shutil.copytree(run.root, tmp_path / "run")
    return RunDirectory(tmp_path / "run"), expected


def failed(run: RunDirectory, expected: Mapping[str, ExpectedRun]) -> dict[str, str]:
    outcomes = run_household_checks(run.root, expected, run.release)
    assert [outcome.name for outcome in outcomes] == list(CHECKS)
    return {outcome.name: outcome.detail for outcome in outcomes if not outcome.passed}


@pytest.mark.parametrize(
    "further",
    ['seed = 6\n[mechanism]\ndefinition = "puredp"\nconfidence = "9/10"\n', "infinite = true\n"],
    ids=["pure", "no noise"],
)
def test_sound_runs_pass(made, further: str, request) -> None:
    run, expected = made(request.node.callspec.id.replace(" ", "-"), further)
    assert failed(run, expected) == {}


def test_a_sound_run_passes_with_all_tables(sound: Sound) -> None:
    run, expected = sound
    assert failed(run, expected) == {}
    tidy = pq.read_table(run.release / "detailed_households.parquet")
    assert set(tidy["table"].unique().to_pylist()) == {
        *("T03001", "T03002", "T03003", "T03004"),
        *("T04001", "T04002"),
    }
    assert pc.max(pc.subtract(tidy["margin_if_cut"], tidy["margin"])).as_py() > 0


def edited(path: Path, edit: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.read_table(path)
    pq.write_table(edit(table).replace_schema_metadata(table.schema.metadata), path)


def changed(table: pa.Table, name: str, change: Callable[[np.ndarray], np.ndarray]) -> pa.Table:
    position = table.schema.get_field_index(name)
    values = change(table[name].to_numpy(zero_copy_only=False).copy())
    array = pa.array(values).cast(table.schema.field(position).type)
    return table.set_column(position, table.schema.field(position), array)


def measured(run: RunDirectory, name: str = "t3") -> Path:
    folder = run.root / "measurements" / "detailed_households" / name / "us" / "COUNTY" / "2"
    return next(folder.glob("*.parquet"))


def with_first(change: Callable[[object], object]) -> Callable[[np.ndarray], np.ndarray]:
    def edit(values: np.ndarray) -> np.ndarray:
        values[0] = change(values[0])
        return values

    return edit


DAMAGE: dict[str, tuple[Callable[[RunDirectory], None], str]] = {
    "a measurement is lost": (
        lambda run: edited(measured(run), lambda table: table.slice(1)),
        "measurements_are_complete",
    ),
    "one stands twice": (
        lambda run: edited(
            measured(run), lambda table: pa.concat_tables([table, table.slice(0, 1)])
        ),
        "measurements_are_complete",
    ),
    "another loss": (
        lambda run: edited(
            measured(run, "t4"), lambda t: changed(t, "plb", with_first(lambda _: "1/3"))
        ),
        "measured_loss_is_the_budget",
    ),
    "another variance": (
        lambda run: edited(
            measured(run), lambda t: changed(t, "variance", with_first(lambda v: 1.1 * v))
        ),
        "measured_loss_is_the_budget",
    ),
    "another total of persons": (
        lambda run: edited(
            run.root / "spine" / "group_totals.parquet",
            lambda t: changed(t, "count", with_first(lambda _: -5)),
        ),
        "tables_follow_the_totals",
    ),
    "a total that is gone": (
        lambda run: edited(
            run.root / "spine" / "group_totals.parquet", lambda table: table.slice(1)
        ),
        "measurements_are_complete",
    ),
    "another margin": (
        lambda run: edited(
            run.release / "detailed_households.parquet",
            lambda t: changed(t, "margin", with_first(lambda v: v + 1)),
        ),
        "margins_are_those_of_the_noise",
    ),
    "another count": (
        lambda run: edited(
            run.release / "detailed_households.parquet",
            lambda t: changed(t, "count", with_first(lambda v: v + 1)),
        ),
        "counts_are_those_measured",
    ),
    "another category": (
        lambda run: edited(
            run.release / "detailed_households.parquet",
            lambda t: changed(t, "category_code", with_first(lambda _: 5)),
        ),
        "rows_are_complete",
    ),
    "a row is gone": (
        lambda run: edited(
            run.release / "detailed_households.parquet", lambda table: table.slice(1)
        ),
        "rows_are_complete",
    ),
    "another row of text": (lambda run: _last_text(run, lambda own: own + 1), "counts_are_those"),
    "a negative count": (lambda run: _last_text(run, lambda _: -1), "counts_are_not_negative"),
    "a row of text is gone": (lambda run: _last_text(run, None), "rows_are_complete"),
    "no stamp": (
        lambda run: (run.release / "t4.csv").write_text(
            "\n".join((run.release / "t4.csv").read_text().splitlines()[1:]) + "\n"
        ),
        "files_agree",
    ),
}


def _last_text(run: RunDirectory, change: Callable[[int], int] | None) -> None:
    """Change the count of the last row of t3.csv, or take the row out."""
    path = run.release / "t3.csv"
    *lines, last = path.read_text().splitlines()
    if change is not None:
        key, _, count = last.rpartition("|")
        lines.append(f"{key}|{change(int(count))}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_fails_the_check_for_it(damaged: Sound, what: str) -> None:
    damage, check = DAMAGE[what]
    damage(damaged[0])
    assert any(name.startswith(check) for name in failed(*damaged))


def test_another_promise_is_not_kept(sound: Sound) -> None:
    """Of budgets, thresholds, confidence and what is allowed."""
    run, expected = sound
    t3 = expected["t3"]
    levels = tuple(
        dataclasses.replace(level, budget=level.budget * Fraction(101, 100)) for level in t3.levels
    )
    found = failed(run, {**expected, "t3": dataclasses.replace(t3, levels=levels)})
    assert {"measured_loss_is_the_budget", "margins_are_those_of_the_noise"} <= set(found)
    levels = tuple(dataclasses.replace(level, thresholds=(1, 2, 3)) for level in t3.levels)
    found = failed(run, {**expected, "t3": dataclasses.replace(t3, levels=levels)})
    assert "tables_follow_the_totals" in found
    narrow = dataclasses.replace(t3, confidence=Fraction(1, 2))
    assert set(failed(run, {**expected, "t3": narrow})) == {"margins_are_those_of_the_noise"}


def test_a_file_that_is_missing_fails_what_needs_it(damaged: Sound) -> None:
    run, expected = damaged
    (run.release / "t4.csv").unlink()
    assert "files_agree" in failed(run, expected)
