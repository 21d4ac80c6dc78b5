"""Every check passes on a right run, and fails alone on a run that is wrong in its way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.validation.outcome import Failures, write_outcomes
from spineflow.validation.run_files import UnusableRunFile
from spineflow.validation.topdown.cells import Cells
from spineflow.validation.topdown.run_checks import CHECKS
from spineflow.validation.topdown.run_files import read_spine
from spineflow.validation.topdown.spine_parts import BLOCKS_PER_PART
from spineflow.validation.topdown.spine_structure import check_spine

from tests.seeds import covering
from tests.validation.conftest import where
from tests.whole_checks import run_checks

GEOLEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
BYPASSED_BLOCK = "4400103010022000"

pytestmark = pytest.mark.slow


def added_row(**values) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: pd.concat([frame, pd.DataFrame([values])], ignore_index=True)


def one_person_moves(geocodes: set[str], cell: int, to: int) -> Callable:
    """A change by which one person of the listed geounit leaves a cell for an empty one."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        row = frame.index[(frame["cell"] == cell) & frame["geocode"].isin(geocodes)][0]
        frame.loc[row, "count"] -= 1
        frame = added_row(geocode=frame.loc[row, "geocode"], cell=to, count=1)(frame)
        return frame[frame["count"] > 0].reset_index(drop=True)

    return change


def test_right_runs_pass(right_runs):
    assert right_runs["noisy"].failing() == set()
    assert right_runs["exact"].failing() == set()


def test_pieces_fail_in_the_words_of_one(run):
    for universe in run.expected:
        run.edit(run.estimates("Block", universe), where("count", lambda n: n + 1))
        run.edit(run.spine("geounits", universe), where("n_blocks", lambda n: n + 1))
    run.edit(run.queries("Tract"), where("plb", lambda _: "1/97"))
    in_parts, in_pieces = run.outcomes(blocks_per_part=2), run.outcomes_of_pieces(3)
    assert [(o.name, o.detail) for o in in_pieces] == [(o.name, o.detail) for o in in_parts]
    assert len([o for o in in_parts if not o.passed]) >= 5
    whole = run.outcomes(blocks_per_part=BLOCKS_PER_PART)
    assert [(o.name, o.passed) for o in whole] == [(o.name, o.passed) for o in in_parts]


def test_one_universe_can_be_checked_alone(right_runs):
    run = right_runs["noisy"]
    units = {"units": run.expected["units"]}
    outcomes = run_checks(run.path, units, areas=run.areas)
    assert all(outcome.passed for outcome in outcomes)
    outcomes = run_checks(run.path, units)
    assert [o.name for o in outcomes if not o.passed] == ["microdata_tabulate_to_estimates"]
    assert "facilities" in outcomes[-1].detail


@pytest.mark.parametrize("universe", ["persons", "units"])
@pytest.mark.parametrize(
    "change",
    [
        where("n_blocks", lambda n: n + 1, geolevel="Tract"),
        where("bypassed", lambda _: True, geolevel="County"),
        where("bypassed", lambda _: False, bypassed=True),
    ],
)
def test_spine_columns_must_agree(run, universe, change):
    run.edit(run.spine("geounits", universe), change)
    assert run.failing() == {(universe, "spine_is_a_tree")}


def test_ancestors_must_be_each_others_parents(run):
    run.edit(
        run.spine("blocks", "persons"),
        where("Tract", lambda _: "04410003001", Tract="04410001001"),
    )
    assert run.failing() == {("persons", "spine_is_a_tree")}


def test_blocks_that_exchange_tracts_are_seen(run):
    """Every geounit keeps its number of blocks."""

    def exchange(frame: pd.DataFrame) -> None:
        for column in ("Tract", "Block_Group"):
            rows = [
                frame.index[frame["block_geocode"] == block][0]
                for block in ("4400103010011000", "4400302010011000")
            ]
            frame.loc[rows, column] = frame.loc[rows[::-1], column].to_list()

    run.edit(run.spine("blocks", "persons"), exchange)
    assert run.failing() == {("persons", "spine_is_a_tree")}


def test_spine_rules_one_by_one(right_runs):
    """Rules that no single edit of a file can break alone."""
    spine = read_spine(right_runs["noisy"].path, "persons", GEOLEVELS)

    def texts(levels=None, **changes) -> str:
        changed = [replace(level, **(levels or {}).get(level.name, {})) for level in spine.levels]
        failures = Failures()
        check_spine(replace(spine, levels=tuple(changed), **changes), failures)
        return failures.outcome("", "", "").detail

    assert texts() == ""
    tract = spine.level_index("Tract")
    codes = spine.levels[tract].geocode.to_pylist()
    renamed = pa.array(["9" + code for code in codes])
    assert "start with its parent" in texts({"Tract": {"geocode": renamed}})
    root = {"geocode": pa.array(["0", "1"]), "parent": np.array([-1, -1])}
    root |= {"share_code": np.zeros(2, int), "bypassed": np.zeros(2, bool)}
    assert "2 geounits" in texts({"US": root | {"n_blocks": np.array([7, 0])}})
    blocks = spine.ancestors[-1][[1, 0, *range(2, 7)]]
    assert "another geocode" in texts(ancestors=(*spine.ancestors[:-1], blocks))
    first, *others = spine.block_geocode.to_pylist()
    moved = pa.array(["45" + first[2:], *others])
    assert "another state" in texts(block_geocode=moved)
    twice = spine.ancestors[-1].copy()
    twice[0] = twice[1]
    assert "is not one area of its own" in texts(ancestors=(*spine.ancestors[:-1], twice))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("geounits", where("geolevel", lambda _: "Prim", geolevel="US"), "geolevels"),
        ("geounits", where("geocode", lambda _: "04410001", geocode="04410003"), "twice"),
        ("geounits", where("parent", lambda _: "9", geocode="04410003"), "unknown parent"),
        ("geounits", where("plb_share", lambda _: "0.5", geocode="0"), "not a fraction"),
        ("geounits", where("plb_share", lambda _: None, geocode="0"), "lacks a share"),
        ("blocks", where("County", lambda _: "9", County="04410003"), "no known ancestor"),
        (
            "blocks",
            where("block_geocode", lambda _: BYPASSED_BLOCK, Block_Group="044100010010001"),
            "twice",
        ),
        ("blocks", lambda frame: frame.drop(columns="County"), "no column County"),
    ],
)
def test_spines_that_are_no_tree_fail_every_check_of_their_universe(run, file, change, message):
    run.edit(run.spine(file, "units"), change)
    assert run.failing() == {("units", name) for name in CHECKS}
    with pytest.raises(UnusableRunFile, match=message):
        read_spine(run.path, "units", GEOLEVELS)


def split_largest(frame: pd.DataFrame) -> pd.DataFrame:
    row = frame["count"].idxmax()
    frame.loc[row, "count"] -= 1
    return pd.concat([frame, frame.loc[[row]].assign(count=1)], ignore_index=True)


@pytest.mark.parametrize(
    ("change", "universe", "level"),
    covering(
        [
            added_row(geocode="99999", cell=0, count=1),
            split_largest,
            lambda frame: added_row(geocode=frame["geocode"][0], cell=2016, count=1)(frame),
            lambda frame: added_row(geocode=frame["geocode"][0], cell=-1, count=1)(frame),
            lambda frame: added_row(geocode=frame["geocode"][0], cell=1, count=0)(frame),
            lambda frame: added_row(geocode=frame["geocode"][0], cell=1, count=-1)(frame),
        ],
        ["persons", "units"],
        ["US", "County", "Block"],
    ),
)
def test_estimates_must_be_counts(run, universe, level, change):
    run.edit(run.estimates(level, universe), change)
    assert run.failing() == {(universe, "estimates_are_counts")}


def test_estimates_of_another_type_fail(run):
    path = run.estimates("Tract")
    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "count", table["count"].cast(pa.float64())), path)
    assert ("persons", "estimates_are_counts") in run.failing()


@pytest.mark.parametrize("level", GEOLEVELS)
def test_children_must_add_to_parents(run, level):
    def move(frame: pd.DataFrame) -> pd.DataFrame:
        household = frame[frame["cell"] < 252].iloc[0]
        free = next(cell for cell in range(252) if cell not in set(frame["cell"]))
        return one_person_moves({household["geocode"]}, household["cell"], free)(frame)

    run.edit(run.estimates(level), move)
    if level == "Block":
        run.write_release()
    assert run.failing() == {("persons", "children_add_to_parents")}


@pytest.mark.parametrize(
    ("universe", "level", "change"),
    [
        ("persons", "Tract", lambda frame: frame.iloc[1:]),
        ("persons", "State", lambda frame: frame[frame["query_name"] != "state_total_con"]),
        ("persons", "US", lambda frame: frame[frame["query_name"] != "total_con"]),
        ("persons", "Block", lambda frame: frame[frame["query_name"] != "nurse_nva_0_con"]),
        ("persons", "County", added_row(geocode="04410001", query_name="total_con", sign="=",
                                        value=[1])),
        ("persons", "County", where("sign", lambda _: "=", query_name="hhgq_total_ub_con")),
        ("persons", "County", where("geocode", lambda _: "9", query_name="nurse_nva_0_con")),
        ("persons", "County", added_row(geocode="9", query_name="nurse_nva_0_con", sign="=",
                                        value=[0])),
        ("units", "Block_Group", lambda frame: pd.concat([frame, frame.iloc[:1]])),
        ("units", "Tract", lambda frame: frame.assign(value=[[float(v[0])] for v in frame.value])),
        ("units", "Tract", lambda frame: frame.assign(value=[[*v, 0] for v in frame.value])),
        ("units", "Tract", lambda frame: frame.assign(value=[None] * len(frame))),
        ("units", "Block", lambda frame: frame.iloc[:0]),
    ],
)  # fmt: skip
def test_constraints_must_be_complete(run, universe, level, change):
    run.edit(run.constraints(level, universe), change)
    assert run.failing() == {(universe, "constraints_are_complete")}


@pytest.mark.parametrize(
    ("universe", "level", "name"),
    [
        ("persons", "State", "state_total_con"),
        ("persons", "US", "total_con"),
        ("units", "US", "total_con"),
        ("units", "Tract", "total_con"),
        ("units", "Block", "total_con"),
    ],
)
@pytest.mark.parametrize("difference", [-1, 1])
def test_equality_constraints_must_hold(run, universe, level, name, difference):
    change = where("value", lambda old: [old[0] + difference], query_name=name)
    run.edit(run.constraints(level, universe), change)
    assert run.failing() == {(universe, "equality_constraints_hold")}


@pytest.mark.parametrize(
    ("level", "bound"),
    covering(GEOLEVELS, [("hhgq_total_lb_con", 10**6), ("hhgq_total_ub_con", 0)]),
)
def test_bounds_must_hold(run, level, bound):
    name, value = bound[0], lambda old: [bound[1], *old[1:]]
    run.edit(run.constraints(level), where("value", value, query_name=name))
    assert run.failing() == {("persons", "bounds_hold")}


@pytest.mark.parametrize("kind", [pa.large_list(pa.int32()), pa.list_(pa.int64(), 1)])
def test_any_list_of_integers_is_read(run, kind):
    path = run.constraints("Tract", "units")
    table = pq.read_table(path)
    index = table.column_names.index("value")
    pq.write_table(table.set_column(index, "value", table["value"].cast(kind)), path)
    assert run.failing() == set()
    run.edit(path, where("value", lambda old: [old[0] + 1], query_name="total_con"))
    assert run.failing() == {("units", "equality_constraints_hold")}


def test_bounds_may_be_met_exactly(run):
    """A bound equal to the count is met, one beyond is not: the signs are not strict."""
    path = run.constraints("US")
    root = pq.read_table(run.estimates("US")).to_pandas()
    households = int(root.loc[root["cell"] < 252, "count"].sum())
    for name in ("hhgq_total_lb_con", "hhgq_total_ub_con"):
        run.edit(path, where("value", lambda old: [households, *old[1:]], query_name=name))
    assert run.failing() == set()
    lower = where("value", lambda old: [households + 1, *old[1:]], query_name="hhgq_total_lb_con")
    run.edit(path, lower)
    assert run.failing() == {("persons", "bounds_hold")}


def test_structural_zeros_must_hold(run):
    adult = int(PERSONS.cells_where({"hhgq": [3], "votingage": [1]}).argmax())
    minor = int(PERSONS.cells_where({"hhgq": [3], "votingage": [0]}).argmax())
    block_group = "044100030010001"
    path = {"0", "044", "04410003", "04410003001", block_group, block_group + "4400302010011001"}
    for level in GEOLEVELS:
        run.edit(run.estimates(level), one_person_moves(path, adult, minor))
    run.write_release()
    assert run.failing() == {("persons", "structural_zeros_hold")}


def test_structural_zeros_must_be_zero_in_the_files(run):
    run.edit(
        run.constraints("County"),
        where("value", lambda _: [1], query_name="nurse_nva_0_con"),
    )
    assert run.failing() == {("persons", "structural_zeros_hold")}


def test_shares_must_add_to_one(run, exact_run):
    change = where("plb_share", lambda _: "5/41", geolevel="County")
    for folder in (run, exact_run):
        folder.edit(folder.spine("geounits", "persons"), change)
    assert exact_run.failing() == {("persons", "shares_add_to_one")}
    assert run.failing() == {
        ("persons", "shares_add_to_one"),
        ("persons", "measured_loss_is_the_budget"),
    }


def test_a_share_off_by_the_least_amount_is_seen(exact_run):
    tiny = f"{4 * 10**30 + 1}/{41 * 10**30}"
    exact_run.edit(
        exact_run.spine("geounits", "units"),
        where("plb_share", lambda _: tiny, geolevel="County"),
    )
    assert exact_run.failing() == {("units", "shares_add_to_one")}


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.iloc[1:],
        lambda frame: pd.concat([frame, frame.iloc[:1]]),
        where("query_name", lambda _: "cenrace_dpq", query_name="total_dpq"),
        where("geocode", lambda _: "9", query_name="total_dpq"),
        added_row(geocode="9", query_name="total_dpq", value=[0], variance=0.0, plb="inf"),
        lambda frame: pd.concat([frame, frame.iloc[:1].assign(query_name="cenrace_dpq")]),
    ],
    ids=[
        "lacking",
        "twice",
        "another query",
        "another geocode",
        "further geocode",
        "further query",
    ],
)
def test_measurements_must_be_complete(exact_run, change):
    exact_run.edit(exact_run.queries("Block_Group"), change)
    assert exact_run.failing() == {("persons", "measurements_are_complete")}


def test_a_bypassed_geounit_must_not_be_measured(run):
    row = {"geocode": "044100010010002" + BYPASSED_BLOCK, "query_name": "total_dpq"}
    row |= {"value": [0], "variance": 1.0, "plb": "0"}
    run.edit(run.queries("Block"), added_row(**row))
    assert run.failing() == {
        ("persons", "measurements_are_complete"),
        ("persons", "noise_is_what_its_loss_pays_for"),
    }


def test_a_lost_measurement_is_seen_twice_in_a_noisy_run(run):
    run.edit(run.queries("Tract", "units"), lambda frame: frame.iloc[1:])
    assert run.failing() == {
        ("units", "measurements_are_complete"),
        ("units", "measured_loss_is_the_budget"),
    }


def swap_losses(frame: pd.DataFrame) -> None:
    """Two queries of one geounit exchange their losses, so that every path keeps its sum."""
    rows = frame.index[frame["geocode"] == frame["geocode"][0]]
    assert len(rows) == 2
    for column in ("plb", "variance"):
        frame.loc[rows, column] = frame.loc[rows[::-1], column].to_list()


def with_loss(loss: str, variance: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """The first measurement gets another loss, and the variance that goes with it."""
    return lambda frame: frame.assign(
        plb=[loss, *frame["plb"][1:]], variance=[variance, *frame["variance"][1:]]
    )


@pytest.mark.parametrize(
    "change",
    [
        swap_losses,
        with_loss("1/7", 7.0),
    ],
)
def test_each_loss_must_be_its_part_of_the_budget(run, change):
    run.edit(run.queries("County"), change)
    assert run.failing() == {("persons", "measured_loss_is_the_budget")}


def test_a_run_with_noise_must_not_claim_an_infinite_loss(run):
    run.edit(run.queries("County"), with_loss("inf", 0.0))
    assert run.failing() == {
        ("persons", "measured_loss_is_the_budget"),
        ("persons", "noise_is_what_its_loss_pays_for"),
    }


@pytest.mark.parametrize(
    ("change", "level"),
    covering(
        [
            where("variance", lambda old: old * (1 + 1e-6), query_name="total_dpq"),
            where("variance", lambda old: old / 1.1, query_name="total_dpq"),
            where("variance", lambda _: 0.0, query_name="hispanic * cenrace_dpq"),
            where("variance", lambda _: float("nan"), query_name="total_dpq"),
            where("value", lambda old: [*old, 0], query_name="total_dpq"),
            where("value", lambda old: old[:-1], query_name="hispanic * cenrace_dpq"),
            where("value", lambda old: [], query_name="total_dpq"),
            where("value", lambda old: [None], query_name="total_dpq"),
            lambda frame: frame.assign(value=[[float(v) for v in row] for row in frame["value"]]),
        ],
        ["County", "Block"],
    ),
)
def test_measurements_must_carry_the_noise_of_their_loss(run, level, change):
    run.edit(run.queries(level), change)
    assert run.failing() == {("persons", "noise_is_what_its_loss_pays_for")}


def test_noise_that_a_vast_budget_makes_nothing_is_no_noise(run):
    """Settings edited to such a rho agree with files whose measurements are exact."""
    vast = Fraction(10**12)
    run.expected["units"] = replace(run.expected["units"], total=vast)
    for level in GEOLEVELS:
        for path in run.queries(level, "units").parent.glob("*.parquet"):
            run.edit(
                path,
                lambda frame: frame.assign(
                    plb=[str(Fraction(p) / Fraction(3, 40) * vast) for p in frame["plb"]],
                    variance=0.0,
                ),
            )
    assert run.failing() == {("units", "noise_is_what_its_loss_pays_for")}
    assert "carries no noise" in run.detail("units", "noise_is_what_its_loss_pays_for")


def test_a_run_without_noise_must_not_claim_a_loss(exact_run):
    exact_run.edit(
        exact_run.queries("County"),
        with_loss("1/7", 7.0),
    )
    assert exact_run.failing() == {("persons", "measured_loss_is_the_budget")}
    exact_run.edit(exact_run.queries("County"), with_loss("inf", 7.0))
    assert exact_run.failing() == {("persons", "noise_is_what_its_loss_pays_for")}


def test_files_that_are_missing_or_cut_fail_their_checks(run):
    run.released("units", "csv").unlink()
    path = run.released("persons", "parquet")
    path.write_bytes(path.read_bytes()[:-100])
    shutil.rmtree(run.constraints("State").parent)
    path = run.queries("US", "units")
    path.write_bytes(b"")
    assert run.failing() == {
        ("persons", "microdata_tabulate_to_estimates"),
        ("persons", "constraints_are_complete"),
        ("units", "microdata_tabulate_to_estimates"),
        ("units", "measurements_are_complete"),
        ("units", "measured_loss_is_the_budget"),
        ("units", "noise_is_what_its_loss_pays_for"),
    }


def test_missing_estimates_fail(run):
    shutil.rmtree(run.estimates("County", "units").parent)
    assert ("units", "estimates_are_counts") in run.failing()


def test_missing_release_files_are_named(run):
    run.released("units", "csv").unlink()
    text = run.detail("units", "microdata_tabulate_to_estimates")
    assert text == "the file mdf_units.csv of the release is missing"


def test_missing_values_are_named(run):
    run.edit(
        run.estimates("County"),
        lambda frame: frame.assign(geocode=[None, *frame["geocode"][1:]]),
    )
    text = run.detail("persons", "estimates_are_counts")
    assert text == "a geocode in persons/County/part-0.parquet is missing"


def test_units_of_an_unknown_schema_fail(right_runs):
    """The codes of such microdata are not defined, so that nothing may be said of them."""
    run = right_runs["noisy"]
    promise = replace(run.expected["units"], cells=Cells("units", {"sex": 2}))
    outcomes = run_checks(run.path, {"units": promise}, areas=run.areas)
    assert not outcomes[-1].passed
    assert "schema" in outcomes[-1].detail


def test_outcomes_name_no_path_and_no_error_text_of_a_library(run):
    run.released("units", "csv").write_bytes(b"\xff\xfe")
    run.estimates("Block").write_bytes(b"PAR1 no")
    for outcome in run.outcomes():
        assert str(run.path) not in outcome.detail


def test_release_may_wait_in_another_folder(run, tmp_path):
    shutil.move(run.path / "release", tmp_path / "waiting")
    assert run.failing(release_directory=tmp_path / "waiting") == set()
    assert {name for _, name in run.failing()} == {"microdata_tabulate_to_estimates"}


def test_outcomes_are_written_as_json(right_runs, tmp_path):
    outcomes = right_runs["noisy"].outcomes()
    path = write_outcomes(outcomes, tmp_path / "validation")
    content = json.loads(path.read_text())
    assert path.name == "checks.json"
    assert list(content) == ["passed", "checks"]
    assert content["passed"] is True
    assert len(content["checks"]) == len(outcomes)
    assert [p.name for p in path.parent.iterdir()] == ["checks.json"]

    failures = Failures()
    failures.add("two things are wrong", count=2)
    wrong = failures.outcome("bounds_hold", "persons", "")
    content = json.loads(
        write_outcomes([*outcomes, wrong], tmp_path, stamp="NOT PRIVATE").read_text()
    )
    assert content["passed"] is False
    assert content["stamp"] == "NOT PRIVATE"
    assert content["checks"][-1]["detail"] == "two things are wrong; 2 failures in all"


@pytest.mark.parametrize(
    "name",
    [
        "spine/persons/geounits.parquet",
        "spine/units/blocks.parquet",
        "estimates/persons/County/part-0.parquet",
        "measurements/persons/County/constraints/part-0.parquet",
        "measurements/units/Block/dpqueries/part-0.parquet",
        "release/mdf_persons.parquet",
        "release/mdf_units.csv",
    ],
)
def test_unusable_files_fail(run, passes_when_damaged, name):
    """A file that cannot be used fails the checks, whatever is wrong with it; none crashes."""
    universe = "units" if "/units/" in name or "mdf_units" in name else "persons"
    own = replace(run, expected={universe: run.expected[universe]})
    assert passes_when_damaged(run.path / name, own.outcomes, unread={"is_aian"}) == []
