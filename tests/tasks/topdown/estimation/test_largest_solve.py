"""The largest solve told beforehand: its cells and solver as they come out, memory, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import with_estimator
from spineflow.tasks.topdown.estimation import largest_solve as module
from spineflow.tasks.topdown.estimation.largest_solve import (
    fewest_cells,
    largest_solve,
    refuse_large_solves,
)
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import spines_of

from tests.tasks.topdown.offices import Office

SECTIONS = pd.DataFrame(
    {"region": [0, 0, 0, 1, 1], "town": [10, 10, 11, 20, 20], "section": range(100, 105)}
)
PEOPLE = pd.DataFrame({"section": [100, 104], "age": [3, 70], "income": [9, 0], "sex": [1, 2]})
ZERO = '[[census.universes.residents.structural_zeros]]\nname = "young"\nwhere = { %s }\n'


def office(incomes: int, ages: int = 50) -> Office:
    """Residents in ages x incomes x 2 cells."""
    return Office(
        SECTIONS,
        PEOPLE,
        attributes={
            "age": f'column = "age"\nnumbers = [0, {ages - 1}]',
            "income": f'column = "income"\nnumbers = [0, {incomes - 1}]',
            "sex": 'column = "sex"\nlevels = { m = ["1"], f = ["2"] }',
        },
    )


def settings_of(folder: Path, incomes: int, queries: list[str], ages: int = 50) -> TopdownSettings:
    """The settings of such a census with these queries."""
    office(incomes, ages).settings(folder)
    file = folder / "settings.toml"
    text = file.read_text().partition("[budget.")[0]
    shares = "".join(f'"{name}" = "1/{len(queries)}"\n' for name in queries)
    file.write_text(
        f'{text}[budget.residents]\nrho = "1"\ndelta = "1e-10"\n[budget.residents.queries.other]\n'
        f"{shares}"
    )
    return load_settings(TopdownSettings, file, presets=PRESETS)


def test_the_root_is_known_and_families_are_bounded(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "a", 60, ["age", "income", "sex"])
    root = largest_solve(settings, "residents")
    assert (root.cells, root.children, root.geolevel) == (6_000, 1, "nation")
    assert root.is_known and root.solver == "dual newton" and root.rows == 50 + 60 + 2
    areas = SECTIONS.astype(str).assign(
        block_geocode=[
            "/".join(map(str, row)) for row in SECTIONS.itertuples(index=False, name=None)
        ]
    )
    spine = spines_of(settings).spine("residents", (areas, areas))
    widest = max(int(np.bincount(level.parent).max()) for level in spine.geolevels[1:])
    found = largest_solve(settings, "residents", spine)
    assert (found.cells, found.children, found.is_known) == (6_000, widest, False)
    assert found.n_bytes > root.n_bytes and found.sentence().startswith("at most 6,000 cells of")
    few = largest_solve(settings, "residents", spine, records=2)
    assert few == root, "families of at most two people are smaller than the root"


@pytest.mark.parametrize(
    "incomes, queries, solver",
    [
        (20, ["age", "income * sex", "detailed"], "active set"),
        (20, ["age", "income * sex"], "dual newton"),
        (2, ["age", "income * sex"], "active set"),
        (60, ["age", "detailed"], "dual newton"),
    ],
)
def test_the_solver_is_the_one_that_a_pass_takes(
    tmp_path: Path, incomes: int, queries: list[str], solver: str
) -> None:
    assert largest_solve(settings_of(tmp_path, incomes, queries), "residents").solver == solver


def test_full_information_needs_matrices_of_all_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, 60, ["age", "detailed"])
    full = with_estimator(settings, "full_information")
    root, weighed = (largest_solve(own, "residents") for own in (settings, full))
    assert (root.solver, weighed.solver) == ("dual newton", "active set")
    assert weighed.n_bytes > 10 * root.n_bytes
    monkeypatch.setattr(module, "memory_of_machine", lambda: root.n_bytes)
    refuse_large_solves(settings)
    with pytest.raises(InputRefused, match="choose the estimator topdown"):
        refuse_large_solves(full)


def test_of_several_passes_the_last_has_all_cells(tmp_path: Path) -> None:
    settings_of(tmp_path, 60, ["total", "age", "income * sex"])
    file = tmp_path / "settings.toml"
    file.write_text(
        file.read_text() + "[workload.residents.passes.other]\n"
        'least_squares = [["total", "age"], ["income * sex"]]\nrounder = [["income * sex"]]\n'
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    found = largest_solve(settings, "residents")
    assert (found.cells, found.rows) == (6_000, 120)


def test_structural_zeros_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_zeros = replace(
        office(60), further=ZERO % 'sex = ["m"], income = ["1", "2"]' + ZERO % 'income = ["2"]'
    )
    with_zeros = replace(with_zeros, further=with_zeros.further.replace("young", "old", 1))
    settings = with_zeros.settings(tmp_path / "b")
    assert fewest_cells(settings, "residents") == 6_000 - 100 - 50
    monkeypatch.setattr(module, "MOST_MASKED", 100)
    assert fewest_cells(settings, "residents") == 6_000 - 100 - 100, "what overlaps counts twice"


def test_what_surely_does_not_fit_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, 60, ["age", "income", "sex"])
    needed = largest_solve(settings, "residents").n_bytes
    monkeypatch.setattr(module, "memory_of_machine", lambda: needed // 2 + 1)
    refuse_large_solves(settings)
    monkeypatch.setattr(module, "memory_of_machine", lambda: needed // 2 - 1)
    with pytest.raises(InputRefused, match="6,000 cells of 1 child .*fewer levels.*structural"):
        refuse_large_solves(settings)
    elsewhere = settings.model_copy(
        update={"run": settings.run.model_copy(update={"runner": "dask"})}
    )
    refuse_large_solves(elsewhere)


@pytest.mark.soak(6)
@pytest.mark.parametrize("command", ["check", "run", "budget"])
def test_500_million_cells_are_refused_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command
) -> None:
    settings_of(tmp_path, 5000, ["total", "age"], ages=50_000)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(module, "memory_of_machine", lambda: 64 * 10**9)
    assert main([command, "topdown", str(tmp_path / "settings.toml")]) == 2
    said = capsys.readouterr().err
    assert "500,000,000 cells" in said and "64 GB" in said and "fewer levels" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_began_elsewhere_is_refused_before_its_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, 60, ["age"])
    monkeypatch.setattr(module, "memory_of_machine", lambda: 1)
    assert TOPDOWN.plan is not None
    with pytest.raises(InputRefused, match="this machine has"):
        TOPDOWN.plan(settings, RunDirectory(tmp_path))


@pytest.mark.parametrize("preset", ["pl94_2020_us", "dhc_persons_2020_us"])
def test_the_presets_of_2020_fit_anywhere(tmp_path: Path, preset: str) -> None:
    file = tmp_path / "settings.toml"
    held = 'redistricting = "earlier"\n' if preset.startswith("dhc") else ""
    file.write_text(
        f'preset = "{preset}"\n[input]\npersons = "p.parquet"\nunits = "u.parquet"\n'
        f'geography = "g.txt"\n{held}[privacy]\ndataset = "d"\nledger = "l.db"\n'
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    sizes = [largest_solve(settings, universe) for universe in settings.run.universes]
    assert max(size.n_bytes for size in sizes) < 2 * 10**9
