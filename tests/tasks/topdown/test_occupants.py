"""Universes of units told by their occupants, and tables of variables, compared with pandas."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import spineflow
import tomli_w
from spineflow.tasks.census.influence import Norms
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import dump_settings
from spineflow.tasks.topdown.checks.pieces import outcomes_of_pieces
from spineflow.tasks.topdown.ingest.ingest import check_input_of, ingest_input
from spineflow.tasks.topdown.release.report import exact_losses, exact_losses_file
from spineflow.tasks.topdown.spine.build import write_universe_spine
from spineflow.tasks.topdown.workload.costs import guarantee_of
from spineflow.tasks.topdown.workload.statement import statement_of

from tests.tasks.topdown.declared import load, run_declared

PLACE = ["region", "area"]
AGES = ["15-39", "40-64", "65-99"]
TREE: dict[str, Any] = {
    "census": {
        "geography": {"table": "areas", "geolevels": ["all", *PLACE]},
        "attributes": {
            "householder": {"column": "head.age", "bins": [15, 40, 65], "largest": 99},
            "size": {
                "column": "member.number",
                "levels": {"one": ["1"], "more": [{"from": 2, "to": 9}]},
            },
            "with_children": {
                "rules": [
                    {"level": "no", "where": {"child.number": ["0"]}},
                    {"level": "yes", "where": {}},
                ]
            },
            "tenure": {"column": "tenure", "levels": {"owned": ["o"], "rented": ["r"]}},
        },
        "coarsenings": {
            "old": {"attribute": "householder", "levels": {"old": ["65-99"], "young": []}}
        },
        "universes": {
            "households": {
                "table": "homes",
                "where": {"member.number": [{"from": 1, "to": 99}]},
                "attributes": ["householder", "size", "with_children", "tenure"],
                "area": PLACE,
                "occupants": {
                    "head": {
                        "table": "people",
                        "column": "home",
                        "key": "id",
                        "where": {"role": ["head"]},
                    },
                    "member": {"table": "people", "column": "home", "key": "id"},
                    "child": {
                        "table": "people",
                        "column": "home",
                        "key": "id",
                        "where": {"age": [{"from": 0, "to": 14}]},
                    },
                },
            }
        },
        "tables": [
            {
                "name": "H",
                "universe": "households",
                "where": {"tenure": ["owned"]},
                "levels": ["region", "zone"],
                "rows": [
                    {},
                    {"where": {"with_children": ["yes"]}},
                    {"where": {"with_children": ["yes"]}, "each": "householder"},
                    {"where": {"size": ["one"]}, "each": "old"},
                ],
            }
        ],
    },
    "input": {
        "areas": "areas.csv",
        "homes": "homes.parquet",
        "people": "people.parquet",
        "confidential": False,
    },
    "privacy": {"dataset": "h", "infinite": True},
    "geography": {"spine": "conventional"},
    "budget": {
        "households": {"rho": "1", "delta": "1e-10", "queries": {"other": {"detailed": "1"}}}
    },
}


def write_tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Areas, and one row a household as pandas has it."""
    rng = np.random.default_rng(2)
    areas = pd.DataFrame([(r, f"{i}") for r in "ab" for i in range(3)], columns=PLACE)
    areas["zone"] = ["x", "y", "", "x", "y", "y"]
    areas.to_csv(folder / "areas.csv", index=False)
    homes, people = [], []
    for region, area, _ in areas.itertuples(index=False):
        for _ in range(12):
            home = f"h{len(homes)}"
            homes.append(
                {"id": home, "region": region, "area": area, "tenure": rng.choice(["o", "r"])}
            )
            for member in range(int(rng.integers(0, 5))):
                age = int(rng.integers(15, 90)) if member == 0 else int(rng.integers(0, 60))
                role = "head" if member == 0 else "other"
                people.append({"home": home, "age": age, "role": role})
    rng.shuffle(people)
    frames = pd.DataFrame(homes), pd.DataFrame(people)
    for name, frame in zip(("homes", "people"), frames, strict=True):
        frame.to_parquet(folder / f"{name}.parquet")
    return areas, truth_of(*frames)


def truth_of(homes: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
    """One row an occupied home, with the levels of its attributes."""
    frames = homes, people
    members = (
        frames[1].groupby("home").agg(n=("age", "size"), children=("age", lambda a: (a < 15).any()))
    )
    heads = frames[1][frames[1]["role"] == "head"].set_index("home")["age"]
    found = frames[0].merge(members, left_on="id", right_index=True)
    found["householder"] = pd.cut(found["id"].map(heads), [14, 39, 64, 99], labels=AGES).astype(str)
    found["size"] = np.where(found["n"] == 1, "one", "more")
    found["with_children"] = np.where(found["children"], "yes", "no")
    found["tenure"] = found["tenure"].map({"o": "owned", "r": "rented"})
    return found


def settings_of(folder: Path, tree: dict[str, Any] = TREE):
    (folder / "settings.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")
    return load(folder / "settings.toml")


def test_households_are_told_by_their_occupants(tmp_path: Path) -> None:
    areas, truth = write_tables(tmp_path)
    assert len(truth) < 72, "some homes should be empty"
    run, outcomes = run_declared(settings_of(tmp_path), tmp_path / "run")
    assert not [outcome for outcome in outcomes if not outcome.passed]
    released = pd.read_parquet(run.unchecked_release / "mdf_households.parquet")
    keys = [*PLACE, "householder", "size", "with_children", "tenure"]
    pd.testing.assert_series_equal(
        released.astype(str).groupby(keys).size(), truth.groupby(keys).size()
    )

    table = pd.read_parquet(run.unchecked_release / "tables" / "H.parquet")
    assert list(table) == ["level", "code", "variable", "label", "count"]
    owned = truth[truth["tenure"] == "owned"].merge(areas, on=PLACE)
    has, alone = owned["with_children"] == "yes", owned["size"] == "one"
    is_old = owned["householder"] == "65-99"
    masks = {"all records": has | ~has, "with_children: yes": has}
    masks |= {
        f"with_children: yes; householder: {age}": has & (owned["householder"] == age)
        for age in AGES
    }
    masks |= {"size: one; old: old": alone & is_old, "size: one; old: young": alone & ~is_old}
    for level, codes in (("region", ["a", "b"]), ("zone", ["x", "y"])):
        for code in codes:
            found = table[(table["level"] == level) & (table["code"] == code)]
            assert found["variable"].tolist() == [str(i) for i in range(1, 8)]
            assert found["label"].tolist() == list(masks)
            here = owned[level] == code
            assert found["count"].tolist() == [int((mask & here).sum()) for mask in masks.values()]


def with_people() -> dict[str, Any]:
    """Settings of households and of people, of which each changes the records of both."""
    tree = deepcopy(TREE)
    census, budget = tree["census"], tree["budget"]
    census["attributes"]["age"] = {"column": "age", "bins": [0, 18], "largest": 99}
    census["universes"]["people"] = {
        "table": "people",
        "attributes": ["age"],
        "through": {"column": "home", "table": "homes", "key": "id"},
        "area": PLACE,
    }
    budget["people"] = deepcopy(budget["households"])
    for own in budget.values():
        own["rho"] = "1/10"
    tree["run"] = {"universes": ["people", "households"]}
    tree["privacy"] = {"dataset": "h"}
    return tree


def test_what_a_test_can_tell_is_of_all_that_a_person_changes(tmp_path: Path) -> None:
    """Somebody moves from one area to another, and two homes there change with them."""
    write_tables(tmp_path)
    settings = settings_of(tmp_path, with_people())
    rng, draws = np.random.default_rng(5), 400_000
    loss = np.zeros(draws)
    for universe, shift in (("people", 1), ("households", 2)):
        budget = settings.budget_of(universe)
        for geolevel, share in budget.geolevel_shares.items():
            for query_share in budget.query_shares[geolevel].values():
                x = np.arange(-300, 301)
                sigma_squared = float(budget.noise(share, query_share).parameter)
                masses = np.exp(-(x**2) / (2 * sigma_squared))
                for _ in range(2):
                    noise = rng.choice(x, size=draws, p=masses / masses.sum())
                    loss += (shift**2 - 2 * shift * noise) / (2 * sigma_squared)
    # Whoever takes what is likelier is right with a probability of (1 + E max(0, 1 - e^-L)) / 2.
    right = (1 + np.maximum(0, -np.expm1(-loss)).mean()) / 2
    found = spineflow.trade_off("topdown", tmp_path / "settings.toml")
    best = (1 + (1 - found["false_positives"] - found["false_negatives"]).max()) / 2
    assert right - 0.002 <= best <= right + 0.005
    (text,) = statement_of(settings).unprotected
    assert "Values that a record of people takes from records of homes are not protected" in text
    run = RunDirectory(tmp_path / "run")
    start_run(run, product="topdown", settings_text=dump_settings(settings), stamp=settings.stamp)
    ingest_input(run, settings)
    for universe in settings.run.universes:
        write_universe_spine(run, settings, universe)
    exact, figures = exact_losses(run, settings)
    assert exact_losses_file(run).exists()
    assert exact_losses(run, settings) == (exact, figures)  # Read back.
    blocks = " ".join(block for block in figures if isinstance(block, str))
    percent = math.ceil(100 * best)
    assert f"{percent} % for people (records of people and households)" in blocks
    assert "are of one record of one universe" in blocks


@pytest.mark.parametrize(
    "budget", [{"rho": "1"}, {"epsilon": "1", "mechanism": "discrete_laplace"}]
)
def test_variances_are_those_that_the_loss_pays_for(tmp_path: Path, budget: dict) -> None:
    write_tables(tmp_path)
    tree = deepcopy(TREE)
    tree["privacy"] = {"dataset": "h", "seed": 1}
    queries = tree["budget"]["households"]["queries"]
    tree["budget"]["households"] = {"queries": queries} | budget
    if "rho" in budget:
        tree["budget"]["households"]["delta"] = "1e-10"
    settings = settings_of(tmp_path, tree)
    run, outcomes = run_declared(settings, tmp_path / "run")
    assert not [outcome for outcome in outcomes if not outcome.passed]
    files = sorted((run.root / "measurements").rglob("dpqueries/*.parquet"))
    path = next(path for path in files if pq.read_metadata(path).num_rows)
    table = pq.read_table(path)
    wider = pc.multiply(table["variance"], 1.1)
    pq.write_table(table.set_column(3, table.schema.field("variance"), wider), path)
    failed = [outcome.name for outcome in outcomes_of_pieces(run, settings) if not outcome.passed]
    assert failed == ["noise_is_what_its_loss_pays_for"]


def test_two_heads_of_one_household_are_refused(tmp_path: Path) -> None:
    write_tables(tmp_path)
    people = pd.read_parquet(tmp_path / "people.parquet")
    people.loc[people["home"] == people["home"].value_counts().index[0], "role"] = "head"
    people.to_parquet(tmp_path / "people.parquet")
    with pytest.raises(InputRefused, match="head of one row of homes there must be only one"):
        check_input_of(settings_of(tmp_path)).accepted()


def test_an_occupied_home_without_a_head_is_refused(tmp_path: Path) -> None:
    write_tables(tmp_path)
    people = pd.read_parquet(tmp_path / "people.parquet")
    people[people.index != people.index[people["role"] == "head"][0]].to_parquet(
        tmp_path / "people.parquet"
    )
    with pytest.raises(InputRefused, match="head.age must have a level of the attribute household"):
        check_input_of(settings_of(tmp_path)).accepted()


def test_the_ledger_counts_what_a_move_changes(tmp_path: Path) -> None:
    """Per person: four times the rho of a record, or twice its epsilon, as two records change."""
    tree = deepcopy(TREE)
    del tree["privacy"]["infinite"]
    tree["input"]["confidential"] = True
    budget = settings_of(tmp_path, tree).budget_of("households")
    assert guarantee_of(budget).bounded_rho == 4 * guarantee_of(budget).parameter == 4
    pure = replace(budget, mechanism="discrete_laplace")
    assert guarantee_of(pure).bounded_rho == 2
    assert guarantee_of(replace(budget, charge=Norms())).bounded_rho == 1
