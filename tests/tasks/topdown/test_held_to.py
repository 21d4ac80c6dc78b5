"""Releases held to an earlier one: the same answers in every area, and what else is refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from spineflow.flows.running import call_stages
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import dump_settings
from spineflow.tasks.topdown.checks.pieces import outcomes_of_pieces
from spineflow.tasks.topdown.ingest.earlier import held_answers
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.measurement.measure import deciding_files

from tests.tasks.topdown.declared import load, run_declared

Tree = dict[str, Any]
PLACE = ["region", "area"]
EMPTY = ("n", "3")
"""An area without homes."""
GEOGRAPHY: Tree = {"table": "areas", "geolevels": ["all", "region", "area"]}
ADULT = ["0-17", "18 and over"]
PREVIOUS: Tree = {
    "census": {
        "geography": GEOGRAPHY,
        "attributes": {
            # The levels stand in another order than those of the later census.
            "sex": {"column": "sex", "levels": {"male": ["m"], "female": ["f"]}},
            "adult": {"column": "age", "bins": [0, 18], "largest": 99, "labels": ADULT},
            "state": {"column": "state", "levels": {"empty": ["0"], "occupied": ["1"]}},
        },
        "universes": {
            "homes": {"table": "homes", "attributes": ["state"], "area": PLACE},
            "people": {
                "table": "people",
                "attributes": ["adult", "sex"],
                "through": {"column": "home", "table": "homes", "key": "id"},
                "area": PLACE,
                "structural_zeros": [],
            },
        },
    },
    "input": {
        "areas": "areas.csv",
        "homes": "homes.parquet",
        "people": "people.parquet",
        "confidential": False,
    },
    "privacy": {"dataset": "d", "seed": 3},
    "geography": {"spine": "conventional"},
    "budget": {
        name: {"rho": "1", "delta": "1e-10", "queries": {"other": {"detailed": "1"}}}
        for name in ("homes", "people")
    },
}
LATER: Tree = {
    "census": {
        "geography": GEOGRAPHY,
        "attributes": {
            "sex": {"column": "sex", "levels": {"female": ["f"], "male": ["m"]}},
            "age": {"column": "age", "bins": [0, 6, 18, 40, 65], "largest": 99},
            "role": {"column": "role", "levels": {"head": ["h"], "other": ["o"]}},
        },
        "coarsenings": {
            "adult": {
                "attribute": "age",
                "levels": {"0-17": ["0-5", "6-17"], "18 and over": ["18-39", "40-64", "65-99"]},
            }
        },
        "universes": {
            "people": {
                "table": "people",
                "attributes": ["sex", "age", "role"],
                "through": {"column": "home", "table": "homes", "key": "id"},
                "area": PLACE,
                "structural_zeros": [
                    {"name": "young_heads", "where": {"role": ["head"], "adult": ["0-17"]}}
                ],
                "held_to": [{"release": "counts", "query": "sex * adult"}],
            }
        },
    },
    "input": {**PREVIOUS["input"], "counts": "counts"},
    "privacy": {"dataset": "d", "seed": 4},
    "geography": {"spine": "conventional"},
    "budget": {
        "people": {
            "rho": "1",
            "delta": "1e-10",
            "queries": {"other": {"total": "1/3", "role": "1/3", "detailed": "1/3"}},
        }
    },
}


def later(change: Callable[[Tree], None] = lambda tree: None) -> Tree:
    tree = deepcopy(LATER)
    change(tree)
    return tree


def held(tree: Tree) -> Tree:
    return tree["census"]["universes"]["people"]["held_to"][0]


def settings_of(folder: Path, tree: Tree, name: str = "later"):
    path = folder / f"{name}.toml"
    path.write_text(tomli_w.dumps(tree), encoding="utf-8")
    return load(path)


def finished_run(folder: Path, tree: Tree, name: str) -> RunDirectory:
    settings = settings_of(folder, tree, f"{name}-settings")
    run = RunDirectory(folder / name)
    start_run(run, product="topdown", settings_text=dump_settings(settings), stamp=settings.stamp)
    call_stages(run, settings)
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a small census, and the finished run `counts` of an earlier, coarser release."""
    folder = tmp_path_factory.mktemp("held")
    rng = np.random.default_rng(11)
    rows = [(region, f"{i}") for region in ("n", "s") for i in range(6)]
    pd.DataFrame(rows, columns=PLACE).to_csv(folder / "areas.csv", index=False)
    homes, people = [], []
    for region, area in rows:
        for _ in range(int(rng.integers(5, 40)) if (region, area) != EMPTY else 0):
            home, is_occupied = f"h{len(homes)}", rng.random() < 0.8
            homes.append({"id": home, "region": region, "area": area, "state": int(is_occupied)})
            for member in range(int(rng.integers(1, 5)) if is_occupied else 0):
                age = int(rng.integers(18, 90)) if member == 0 else int(rng.integers(0, 90))
                role, sex = "h" if member == 0 else "o", str(rng.choice(["f", "m"]))
                people.append({"home": home, "age": age, "role": role, "sex": sex})
    pd.DataFrame(homes).to_parquet(folder / "homes.parquet")
    pd.DataFrame(people).to_parquet(folder / "people.parquet")
    fewer = [row for row in rows if row != EMPTY]
    pd.DataFrame(fewer, columns=PLACE).to_csv(folder / "fewer.csv", index=False)
    frame = pd.DataFrame(people)
    frame[(frame["sex"] == "f") | (frame["age"] > 17)].to_parquet(folder / "girls.parquet")
    earlier = finished_run(folder, PREVIOUS, "counts")
    text = earlier.settings.read_text(encoding="utf-8")
    start_run(RunDirectory(folder / "begun"), product="topdown", settings_text=text)
    return folder


def counted(path: Path, *columns: str) -> pd.Series:
    return pd.read_parquet(path).groupby([*PLACE, *columns]).size().sort_index()


def interleaved(tree: Tree) -> None:
    """Who heads a home is decided before ages within minors and adults are."""
    passes = {
        "interleaved": True,
        "least_squares": [["total", "role"], ["detailed"]],
        "rounder": [["sex * adult", "sex * adult * role"], ["detailed"]],
    }
    tree["workload"] = {"people": {"passes": {"other": passes}}}


def in_order(tree: Tree) -> None:
    """The passes that there are without a word."""


@pytest.mark.parametrize("passes", [in_order, interleaved])
def test_every_area_has_the_answers_of_the_earlier_release(
    folder: Path, tmp_path: Path, passes: Callable[[Tree], None]
) -> None:
    run, outcomes = run_declared(settings_of(folder, later(passes)), tmp_path / "run")
    assert not [outcome for outcome in outcomes if not outcome.passed]
    people = pd.read_parquet(run.unchecked_release / "mdf_people.parquet")
    people["adult"] = np.where(people["age"].isin(["0-5", "6-17"]), *ADULT)
    found = people.groupby([*PLACE, "sex", "adult"]).size().sort_index()
    earlier = counted(folder / "counts" / "release" / "mdf_people.parquet", "sex", "adult")
    pd.testing.assert_series_equal(found, earlier)
    truth = pd.read_parquet(folder / "people.parquet")
    assert len(truth) != len(people), "the earlier release should have other totals than the truth"
    assert not ((people["role"] == "head") & (people["adult"] == "0-17")).any()


def test_heads_are_held_to_the_occupied_homes_of_an_earlier_release(
    folder: Path, tmp_path: Path
) -> None:
    def heads(tree: Tree) -> None:
        held(tree).update(name="heads", query="total", universe="homes")
        held(tree).update(where={"role": ["head"]}, of={"state": ["occupied"]})

    run, outcomes = run_declared(settings_of(folder, later(heads)), tmp_path / "run")
    assert not [outcome for outcome in outcomes if not outcome.passed]
    people = pd.read_parquet(run.unchecked_release / "mdf_people.parquet")
    homes = pd.read_parquet(folder / "counts" / "release" / "mdf_homes.parquet")
    found = people[people["role"] == "head"].groupby(PLACE).size()
    occupied = homes[homes["state"] == "occupied"].groupby(PLACE).size()
    pd.testing.assert_series_equal(found, occupied)


def test_a_release_that_breaks_its_word_fails_the_check(folder: Path, tmp_path: Path) -> None:
    """The check reads the released rows and the held answers; either may be wrong."""
    settings = settings_of(folder, later())
    run, outcomes = run_declared(settings, tmp_path / "run")
    told = {outcome.name for outcome in outcomes} & {
        *("structural_zeros_hold", "equality_constraints_hold", "held_answers_agree"),
        *("bounds_hold", "relations_hold"),
    }
    assert told == {"structural_zeros_hold", "held_answers_agree"}, "what is declared, no more"
    path = run.root / "spine" / "held.parquet"
    answers = pd.read_parquet(path)
    answers.loc[3, "count"] += 1
    answers.to_parquet(path)
    failed = [outcome.name for outcome in outcomes_of_pieces(run, settings) if not outcome.passed]
    assert "held_answers_agree" in failed and "privacy_accounting" in failed


def other_areas(tree: Tree) -> None:
    tree["input"]["areas"] = "fewer.csv"


def contradicted_zero(tree: Tree) -> None:
    zero = {"name": "no_boys", "where": {"sex": ["male"], "adult": ["0-17"]}}
    tree["census"]["universes"]["people"]["structural_zeros"].append(zero)
    tree["input"]["people"] = "girls.parquet"


REFUSED: dict[str, tuple[Callable[[Tree], None], str]] = {
    "no such path": (
        lambda tree: tree["input"].update(counts="nowhere"),
        "no directory of a finished run",
    ),
    "no release yet": (
        lambda tree: tree["input"].update(counts="begun"),
        "has no release yet",
    ),
    "no universe": (lambda tree: held(tree).update(universe="cars"), "has no universe cars"),
    "a query that it does not tell": (
        lambda tree: held(tree).update(query="role"),
        "lacks role",
    ),
    "other levels": (
        lambda tree: (
            tree["census"]["coarsenings"]["adult"].update(
                levels={"0-17": ["0-5", "6-17"], "grown": ["18-39", "40-64", "65-99"]}
            )
            or tree["census"]["universes"]["people"].pop("structural_zeros")
        ),
        "has other levels of adult, such as '18 and over'",
    ),
    "other areas": (other_areas, "on other areas .0 of this census are not among .*, and 1 of its"),
    "an unknown layout": (
        lambda tree: held(tree).update(layout="cef_1790") or tree["input"].update(counts="x.csv"),
        "names no census 'cef_1790'",
    ),
    "an empty structural zero": (
        contradicted_zero,
        "held as 'sex . adult of counts' contradict the structural zeros in area n",
    ),
    "an invariant": (
        lambda tree: tree["census"]["universes"]["people"].update(
            invariants=[{"query": "sex", "geolevel": "region"}]
        ),
        "contradict the invariant sex at region in region [ns]",
    ),
    "a bound": (
        lambda tree: (
            tree["census"]["universes"].update(
                homes={
                    "table": "homes",
                    "attributes": ["role"],
                    "area": PLACE,
                    "where": {"id": ["-"]},
                }
            )
            or tree["census"]["universes"]["people"].update(
                bounds=[{"query": "total", "per": "people", "at_most": 1}]
            )
        ),
        "contradict the bound total per people in area",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_held_is_refused_before_anything_is_measured(
    folder: Path, case: str
) -> None:
    change, message = REFUSED[case]
    settings = settings_of(folder, later(change), "refused")
    with pytest.raises(InputRefused, match=message):
        held_answers(settings, check_input_of(settings).accepted())


def test_a_private_run_is_not_held_to_a_release_that_protects_nobody(
    folder: Path, tmp_path: Path
) -> None:
    def private(tree: Tree) -> None:
        del tree["privacy"]["seed"]
        tree["privacy"]["ledger"] = str(tmp_path / "ledger.db")
        tree["input"]["confidential"] = True

    settings = settings_of(folder, later(private))
    with pytest.raises(InputRefused, match="is stamped NOT PRIVATE"):
        held_answers(settings, check_input_of(settings).accepted())


def test_the_held_answers_are_charged_and_compared(folder: Path, tmp_path: Path) -> None:
    settings = settings_of(folder, later())
    run, _ = run_declared(settings, tmp_path / "run")
    assert run.root / "spine" / "held.parquet" in deciding_files(run, settings)
    files = settings.input.files()
    assert str(folder / "counts" / "release") in files
    assert not any(name.endswith("manifest.json") for name in files)
