"""Declared censuses whose records must not be without others, such as minors without an adult, and
which leave empty areas empty: after any noise, at no charge."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.census import compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.declaration import Cells
from spineflow.validation.topdown.microdata import ReleasedRows, check_company

from tests.recorded.content import digest_of_ledger
from tests.tasks.topdown.declared import load, run_declared

COLUMNS = ["district", "section"]
CENSUS = """
[census.geography]
table = "areas"
geolevels = ["country", "district", "section"]
[census.attributes]
lives = { column = "lives", levels = { household = ["h"], institution = ["i"] } }
sex = { column = "sex", levels = { female = ["F"], male = ["M"] } }
age = { column = "age", bins = [0, 18], largest = 99, labels = ["minor", "adult"] }
[census.universes.dwellings]
table = "dwellings"
attributes = ["sex"]
area = ["district", "section"]
[census.universes.persons]
table = "persons"
attributes = ["lives", "sex", "age"]
area = ["district", "section"]
bounds = [{ query = "lives", where = { lives = ["household"] }, per = "dwellings", at_most = 8 }]
invariants = [{ query = "total", geolevel = "GEOLEVEL" }]
[[census.universes.persons.agree]]
name = "company"
kind = "accompanied"
where = { lives = ["household"], age = ["minor"] }
universe = "persons"
of = { lives = ["household"], age = ["adult"] }
at_most = AT_MOST
[input]
areas = "areas.csv"
persons = "persons.csv"
dwellings = "dwellings.csv"
confidential = false
[privacy]
dataset = "country"
PRIVACY
[geography]
spine = "SPINE"
[run]
universes = ["persons"]
RUN
[release]
margins = false
[budget.persons]
rho = "RHO"
delta = "1e-10"
queries.other = { total = "1/4", "lives * age" = "1/4", detailed = "1/2" }
"""
GHOSTS = 'ghosts = "avoid"'
CHOICES = {
    "GEOLEVEL": "country",
    "AT_MOST": "7",
    "PRIVACY": "seed = 3",
    "SPINE": "conventional",
    "RUN": "coherent = true",
    "RHO": "1/20",
}


def text_of(**changes: str) -> str:
    """The settings with other choices."""
    text = CENSUS
    for name, value in (CHOICES | changes).items():
        text = text.replace(name, value)
    return text


def write_tables(folder: Path, seed: int, most: int) -> None:
    """Sections of two districts with below `most` dwellings, most of them with an adult."""
    rng = np.random.default_rng(seed)
    areas = [(district, section) for district in "12" for section in "12345"]
    dwellings, persons = [(*areas[0], "F")], [(*areas[0], "h", "F", 40)]
    for area in areas:
        for _ in range(int(rng.integers(0, most))):
            dwellings.append((*area, "F"))
            for number in range(int(rng.integers(0, 5))):
                age = int(rng.choice([9, 40])) if number else 40
                persons.append((*area, "h", str(rng.choice(["F", "M"])), age))
    persons += [(*areas[1], "i", "M", 9)] * 3
    pd.DataFrame(areas, columns=COLUMNS).to_csv(folder / "areas.csv", index=False)
    for name, rows, more in (
        ("dwellings", dwellings, ["sex"]),
        ("persons", persons, ["lives", "sex", "age"]),
    ):
        pd.DataFrame(rows, columns=COLUMNS + more).to_csv(folder / f"{name}.csv", index=False)


def run_of(folder: Path, name: str, **changes: str) -> RunDirectory:
    """A run whose checks have passed."""
    file = folder / f"{name}.toml"
    file.write_text(text_of(**changes), encoding="utf-8")
    run, outcomes = run_declared(load(file), folder / name)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    assert not failed
    return run


def n_alone(run: RunDirectory, at_most: int) -> int:
    """Sections with more minors in households than so many for each adult, in the microdata."""
    path = run.unchecked_release / "mdf_persons.parquet"
    rows = pd.read_parquet(path).astype(str)
    rows = rows[rows["lives"] == "household"]
    counts = rows.groupby([*COLUMNS, "age"]).size().unstack(fill_value=0)
    counts = counts.reindex(columns=["minor", "adult"], fill_value=0)
    return int((counts["minor"] > at_most * counts["adult"]).sum())


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(
    seed=st.integers(0, 2**31),
    most=st.integers(1, 6),
    rho=st.sampled_from(["1/5000", "1/20", "50"]),
    spine=st.sampled_from(["conventional", "optimized"]),
    at_most=st.sampled_from([1, 3, 7]),
    geolevel=st.sampled_from(["country", "district"]),
    ghosts=st.sampled_from(["allow", "avoid"]),
)
def test_nobody_is_alone_in_any_small_census_after_any_noise(
    tmp_path_factory, seed, most, rho, spine, at_most, geolevel, ghosts
) -> None:
    folder = tmp_path_factory.mktemp("any")
    write_tables(folder, seed, most)
    changes = {"RHO": rho, "SPINE": spine, "AT_MOST": str(at_most), "GEOLEVEL": geolevel}
    changes["RUN"] = f'coherent = true\nghosts = "{ghosts}"'
    run = run_of(folder, "run", PRIVACY=f"seed = {seed}", **changes)
    assert n_alone(run, at_most) == 0


def test_they_are_where_the_run_is_not_coherent(tmp_path) -> None:
    write_tables(tmp_path, 1, 4)
    assert n_alone(run_of(tmp_path, "run", RUN="coherent = false"), 7) > 0


def test_nothing_is_charged(tmp_path) -> None:
    write_tables(tmp_path, 1, 3)
    charged = set()
    for name, run in (("a", "coherent = false"), ("b", "coherent = true"), ("c", GHOSTS)):
        run_of(tmp_path, name, RUN=run, PRIVACY=f'ledger = "{name}.db"')
        charged.add(digest_of_ledger(tmp_path / f"{name}.db"))
    assert len(charged) == 1


def test_ghosts_are_avoided_alone_and_not_by_an_estimator_without_siblings(tmp_path) -> None:
    write_tables(tmp_path, 1, 4)
    estimates = []
    for name, run in (("allow", "coherent = false"), ("avoid", GHOSTS)):
        made = run_of(tmp_path, name, RUN=run)
        solves = pd.concat(map(pd.read_parquet, (made.root / "solves").rglob("*.parquet")))
        estimates.append(set(solves["stage"]))
    assert estimates[1] - estimates[0] == {"empty areas"}
    alone = text_of(RUN=f'{GHOSTS}\nestimator = "block_by_block"')
    held = 'invariants = [{ query = "total", geolevel = "country" }]\n'
    (tmp_path / "alone.toml").write_text(alone.replace(held, ""), encoding="utf-8")
    with pytest.raises(InputRefused, match="run.ghosts does nothing"):
        load(tmp_path / "alone.toml")


def rows_of(*counts: tuple[int, int, int]) -> ReleasedRows:
    """Rows of (area, cell, count) in two areas of four cells."""
    area, cell, count = np.array(counts).T
    return ReleasedRows(slice(0, 2), 4, area, cell, count, None, np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("counts", "n_failures"),
    [
        ([(0, 0, 5), (0, 1, 1), (1, 3, 2)], 0),
        ([(0, 0, 6), (0, 1, 1)], 1),
        ([(0, 0, 1), (1, 1, 9)], 1),
        ([(0, 2, 9), (1, 0, 1)], 1),
    ],
)
def test_the_check_counts_rows_alone(counts, n_failures) -> None:
    cells = Cells("persons", {"lives": ("home", "away"), "age": ("minor", "adult")}, {})
    declared = {
        "name": "company",
        "where": {"lives": ["home"], "age": ["minor"]},
        "of": {"lives": ["home"], "age": ["adult"]},
        "at_most": 5,
    }
    failures = Failures()
    check_company(declared, rows_of(*counts), cells, failures)
    assert failures.count == n_failures


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"at_most": 4}, "its at_most a multiple of 5"),
        ({"of": {"age": ["adult"]}}, "on these and their companions together"),
        ({"of": {"age": ["minor"]}}, "both in where and in of"),
        ({"universe": "dwellings"}, "its universe must be 'persons'"),
        ({"query": "sex"}, "query does nothing"),
        ({"at_most": None}, "needs at_most"),
    ],
)
def test_what_could_leave_no_solution_is_refused(change, reason) -> None:
    tree = tomllib.loads(text_of())["census"]
    (one,) = tree["universes"]["persons"]["agree"]
    tree["universes"]["persons"]["agree"] = [
        {key: value for key, value in (one | change).items() if value is not None}
    ]
    with pytest.raises(ValueError, match=reason):
        compiled(CensusDeclaration.model_validate(tree))


@pytest.mark.parametrize(
    ("key", "entry", "reason"),
    [
        ("invariants", {"query": "total", "geolevel": "section"}, "in the finest areas"),
        ("invariants", {"query": "age", "geolevel": "country"}, "on these and their companions"),
        ("structural_zeros", {"where": {"age": ["adult"]}}, "leave no cell of its companions"),
        (
            "relations",
            {
                "name": "more",
                "left": [{"where": {"age": ["minor"]}}],
                "sign": "<=",
                "right": [{"where": {"age": ["adult"]}}],
            },
            "cannot be combined with relations",
        ),
    ],
)
def test_so_is_what_separates_them(key, entry, reason) -> None:
    tree = tomllib.loads(text_of())["census"]
    persons = tree["universes"]["persons"]
    persons[key] = [*persons.get(key, []), entry]
    with pytest.raises(ValueError, match=reason):
        compiled(CensusDeclaration.model_validate(tree))


def test_the_certificate_tells_of_it(tmp_path) -> None:
    write_tables(tmp_path, 1, 3)
    run = run_of(tmp_path, "run")
    plan = (run.root / "plan/plan.json").read_text(encoding="utf-8")
    assert "persons with lives household and age minor are at most 7 for each" in plan
