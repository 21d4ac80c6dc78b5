"""The four conditions are seen to hold, and every way of breaking them is seen too."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.plan import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
    sensitivity,
)
from spineflow.tasks.products.product import product
from spineflow.validation.group_sizes import CHECKS, _largest_change, run_checks
from spineflow.validation.plan import sha256

from tests.validation.mutations import (
    PRIVACY,
    Place,
    assert_field_is_checked,
    assert_file_is_checked,
    fields_of_plan,
)

OWN = product("group-sizes")
SIZES, TOTALS = "release-unchecked/group_sizes.parquet", "release-unchecked/group_totals.parquet"
STATES = "measurements/groups/state/dpqueries/00000.parquet"


@pytest.fixture(scope="module")
def finished(run_groups, tmp_path_factory):
    """A run whose tables are written, and its settings."""
    folder = tmp_path_factory.mktemp("groups")
    file = write_dataset(folder, census_like(groups=5000, counties=12, states=4, largest=30))
    run, settings = run_groups(file, folder / "run")
    return run, settings


@pytest.fixture
def root(finished, tmp_path: Path) -> Path:
    return shutil.copytree(finished[0].root, tmp_path / "run")


def failed(root: Path) -> dict[str, str]:
    outcomes = run_checks(root, root / "release-unchecked")
    assert [outcome.name for outcome in outcomes] == list(CHECKS)
    return {outcome.name: outcome.detail for outcome in outcomes if not outcome.passed}


def change_sizes(root: Path, change: Callable[[np.ndarray], None]) -> None:
    """Change the released counts, Parquet, text and totals alike."""
    folder = root / "release-unchecked"
    table = pq.read_table(folder / "group_sizes.parquet")
    counts = table["count"].to_numpy().copy()
    change(counts)
    table = table.set_column(3, "count", pa.array(counts))
    pq.write_table(table, folder / "group_sizes.parquet")
    sums = table.group_by(["level", "region"], use_threads=False).aggregate([("count", "sum")])
    totals = sums.rename_columns(["level", "region", "groups"])
    pq.write_table(totals, folder / "group_totals.parquet")
    options = pyarrow.csv.WriteOptions(quoting_style="none", quoting_header="none")
    for name, rows in (("group_sizes", table), ("group_totals", totals)):
        pyarrow.csv.write_csv(rows, folder / f"{name}.csv", write_options=options)


def change_file(root: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    path = root / name
    pq.write_table(change(pq.read_table(path)), path)


def change_settings(root: Path, before: str, after: str) -> None:
    """Change the settings, and their digest in the plan."""
    path, plan = root / "settings.toml", root / "plan" / "plan.json"
    text = path.read_text()
    assert before in text
    was = sha256(path)
    path.write_text(text.replace(before, after))
    plan.write_text(plan.read_text().replace(was, sha256(path)))


def test_a_good_run_passes_every_check(root: Path) -> None:
    shutil.rmtree(root / "confidential")
    assert failed(root) == {}


def test_children_that_do_not_add_up_are_found(root: Path) -> None:

    def shift(counts: np.ndarray) -> None:
        size = int(np.flatnonzero(counts[30:60])[0])
        counts[30 + size] -= 1
        counts[30 + (size + 1) % 30] += 1

    change_sizes(root, shift)
    found = failed(root)
    assert set(found) == {"consistency"}
    assert "counts are not the sum of those below; 4 failures in all" in found["consistency"]


def test_levels_that_lose_groups_are_found(root: Path) -> None:

    def lose(counts: np.ndarray) -> None:
        counts[:] = np.where(np.arange(counts.size) % 30 == 0, 0, counts)

    change_sizes(root, lose)
    found = failed(root)
    assert set(found) == {"faithfulness"}
    assert "3 failures in all" in found["faithfulness"]


def test_negative_counts_are_found(root: Path) -> None:

    def sink(counts: np.ndarray) -> None:
        for level, start in ((1, 0), (4, 30), (12, 150)):
            region = counts[start : start + level * 30].reshape(level, 30)[0]
            region[0] += region[29] + 1
            region[29] = -1

    change_sizes(root, sink)
    assert "a count is negative" in failed(root)["validity"]


def setting(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """The same value in every row of a column."""

    def change(table: pa.Table) -> pa.Table:
        position = table.schema.get_field_index(column)
        return table.set_column(position, column, pa.array([value] * len(table)))

    return change


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        pytest.param(SIZES, lambda t: t.slice(1), "validity", id="row missing"),
        pytest.param(
            SIZES, lambda t: pa.concat_tables([t, t.slice(0, 1)]), "validity", id="row twice"
        ),
        pytest.param(SIZES, setting("level", "town"), "validity", id="level unknown"),
        pytest.param(SIZES, setting("size", 3), "validity", id="size repeated"),
        pytest.param(TOTALS, setting("groups", 7), "faithfulness", id="totals"),
        pytest.param(STATES, lambda t: t.slice(1), "privacy_accounting", id="unmeasured"),
        pytest.param(STATES, setting("plb", "1/4"), "privacy_accounting", id="loss"),
        pytest.param(STATES, setting("variance", 1.0), "privacy_accounting", id="variance"),
        pytest.param(STATES, setting("query_name", "x_dpq"), "privacy_accounting", id="query"),
        pytest.param(STATES, setting("value", [1, 2]), "privacy_accounting", id="length"),
    ],
)
def test_files_that_were_changed_are_found(root: Path, name, change, check) -> None:
    change_file(root, name, change)
    assert check in failed(root)


@pytest.mark.parametrize("place", fields_of_plan(), ids=".".join)
def test_every_field_of_the_plan_is_checked(finished, place: Place) -> None:
    assert_field_is_checked(OWN, *finished, place)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        (SIZES, "validity"),
        ("release-unchecked/group_sizes.csv", "validity"),
        (TOTALS, "validity"),
        ("release-unchecked/group_totals.csv", "validity"),
        (STATES, PRIVACY),
        ("hierarchy/regions.parquet", PRIVACY),
        ("hierarchy/plan.json", PRIVACY),
        ("settings.toml", PRIVACY),
        ("plan/plan.json", PRIVACY),
    ],
)
def test_every_file_is_checked(finished, name: str, check: str) -> None:
    assert_file_is_checked(OWN, *finished, name, check)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('epsilon = "1"', 'epsilon = "2"'),
        ('epsilon = "1"', 'rho = "1"'),
        ("infinite = false", "infinite = true"),
        ('neighbors = "unbounded"', 'neighbors = "bounded"'),
        ("largest_quantity = 1", "largest_quantity = 2"),
        ("largest_size = 30", "largest_size = 31"),
        ("[mechanism]", '[mechanism]\nname = "chain_dp"'),
        ("[mechanism]", '[mechanism]\nname = "cumulative"'),
        ("[mechanism]", '[mechanism]\nlevels = {country = "1/2", state = "1/4", county = "1/4"}'),
        ("[mechanism]", "[mechanism]\nsmallest_size = 0"),
        ("groups = true", "groups = 4999"),
        ("groups = true", 'groups = true\nlevel = "state"'),
        ('dataset = "', 'dataset = "other'),
    ],
)
def test_a_plan_of_other_settings_is_seen(root: Path, before: str, after: str) -> None:
    """Its fields agree with each other, and with every file that it names."""
    change_settings(root, before, after)
    assert PRIVACY in failed(root)
    assert "is not the file" not in failed(root)[PRIVACY]


def test_text_must_hold_the_same_rows(root: Path) -> None:
    path = root / "release-unchecked" / "group_sizes.csv"
    lines = path.read_text().splitlines()
    level, region, size, count = lines[1].split(",")
    path.write_text("\n".join([lines[0], f"{level},{region},{size},{int(count) + 1}", *lines[2:]]))
    assert "group_sizes.csv differ in count" in failed(root)["validity"]


def test_a_private_run_must_not_have_the_stamp(root: Path) -> None:
    text = root / "release-unchecked" / "group_sizes.csv"
    text.write_text("# NOT PRIVATE\n" + text.read_text())
    assert "stamp" in failed(root)["validity"]


def test_relaxed_baselines_are_counted_and_not_failed(run_groups, tmp_path: Path) -> None:
    file = write_dataset(tmp_path, census_like(groups=400, counties=12, states=4, largest=8))
    file.write_text(file.read_text().replace("[mechanism]", '[mechanism]\nname = "hierarchical"'))
    run, _ = run_groups(file, tmp_path / "run")
    outcomes = run_checks(run.root, run.unchecked_release)
    assert all(outcome.passed for outcome in outcomes)
    by_name = {outcome.name: outcome.detail for outcome in outcomes}
    assert "not promised by this mechanism" in by_name["consistency"]
    assert " of 40 counts are not the sum" in by_name["consistency"]
    assert not by_name["consistency"].startswith("not promised by this mechanism: 0 of")
    assert "of 3 levels do not add" in by_name["faithfulness"]


@pytest.mark.parametrize(
    "name",
    [
        "hierarchy/plan.json",
        "hierarchy/regions.parquet",
        "measurements/groups/*/dpqueries/00000.parquet",
        "release-unchecked/group_sizes.parquet",
        "release-unchecked/group_totals.parquet",
        "release-unchecked/group_sizes.csv",
        "release-unchecked/group_totals.csv",
    ],
)
def test_unusable_files_fail(root: Path, passes_when_damaged, name: str) -> None:
    """A file that cannot be used fails the checks, whatever is wrong with it; none crashes."""

    def outcomes():
        return run_checks(root, root / "release-unchecked")

    assert passes_when_damaged(next(root.glob(name)), outcomes) == []


@pytest.fixture(scope="module")
def public_counties(run_groups, tmp_path_factory) -> Path:
    """A run under a rho whose counties have public numbers of groups."""
    folder = tmp_path_factory.mktemp("public")
    file = write_dataset(folder, census_like(groups=600, counties=4, states=2, largest=9))
    text = file.read_text().replace('epsilon = "1"', 'rho = "1/2"')
    text = text.replace("groups = true", 'groups = true\nlevel = "county"')
    file.write_text(text)
    return run_groups(file, folder / "run")[0].root


@pytest.fixture
def exact(public_counties: Path, tmp_path: Path) -> Path:
    """A copy of that run to spoil."""
    return Path(shutil.copytree(public_counties, tmp_path / "run"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda numbers: [numbers[0] + 1, numbers[1] - 1, *numbers[2:]], "2 failures in all"),
        (lambda numbers: [numbers[0] + 1, *numbers[1:]], "do not add to the number of groups"),
    ],
)
def test_counties_without_their_public_numbers_are_found(exact: Path, change, words: str) -> None:

    def changed(table: pa.Table) -> pa.Table:
        groups = pa.array(change(table["groups"].to_pylist()), table["groups"].type)
        return table.set_column(table.column_names.index("groups"), "groups", [groups])

    change_file(exact, "hierarchy/exact_groups.parquet", changed)
    found = failed(exact)["faithfulness"]
    assert found.startswith("regions of county do not have their public numbers")
    assert words in found


def test_public_numbers_of_further_or_unknown_counties_are_found(exact: Path) -> None:
    change_file(
        exact,
        "hierarchy/exact_groups.parquet",
        lambda table: pa.concat_tables(
            [table, pa.table({"region": ["none"], "groups": [0]}).cast(table.schema)]
        ),
    )
    assert "regions of county do not have" in failed(exact)["faithfulness"]
    (exact / "hierarchy" / "exact_groups.parquet").unlink()
    assert "exact_groups.parquet is missing" in str(failed(exact))
    change_settings(exact, 'level = "county"', 'level = "town"')
    assert "is not a level of the hierarchy" in str(failed(exact))


@pytest.mark.parametrize(
    "vector", [GROUP_SIZES, CUMULATIVE_GROUP_SIZES, CHAINED_CUMULATIVE_GROUP_SIZES]
)
@pytest.mark.parametrize("is_bounded", [True, False])
def test_sensitivities_are_recomputed_alike(vector: str, is_bounded: bool) -> None:
    for quantity, n_regions in ((1, 1), (1, 5), (3, 5)):
        settings = {
            "mechanism": {"calibration": "proven", "largest_quantity": quantity},
            "privacy": {"neighbors": "bounded" if is_bounded else "unbounded"},
        }
        for power in (1, 2):
            arguments = {"bounded": is_bounded, "quantity": quantity, "is_squared": power == 2}
            expected = sensitivity(vector, n_regions, **arguments)
            assert _largest_change(settings, vector, n_regions, power) == expected
