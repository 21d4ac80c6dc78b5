"""The released files against rows written out one by one."""

from __future__ import annotations

import csv
import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.detailed_groups.postprocess import (
    MEASURED,
    cut_counts,
    select_released,
    suppress,
)
from spineflow.tasks.detailed_groups.release.tables import (
    TIDY_FILES,
    CountNoise,
    GroupNames,
    name_of_codes,
    tidy_schema,
    write_release,
)
from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget
from spineflow.tasks.detailed_groups.workload.specification import CharacteristicIteration
from spineflow.tasks.detailed_groups.workload.tabulations import SEX_BY_AGE
from spineflow.tasks.noise.quantiles import margin, margin_of_sum
from spineflow.tasks.runs.files import NOT_PRIVATE

from tests.parquet_pages import mark_not_private

AGES = {
    1: (0, 18, 45, 65),
    2: (0, 5, 18, 25, 35, 45, 55, 65, 75),
    3: (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
LEVELS = [("COUNTY", 1), ("COUNTY", 2), ("STATE", 1), ("STATE", 2)]
NOISE = CountNoise(
    {level: LevelBudget(Fraction(1, 2 + i), 1, Fraction(1, 3)) for i, level in enumerate(LEVELS)},
    Fraction(9, 10),
)
ITERATIONS = (
    CharacteristicIteration("1001", "Albanian alone", 2, True),
    CharacteristicIteration("0002", "European alone", 1, True),
)
NAMES = GroupNames({item.code: item for item in ITERATIONS}, {})


T1, T2, TIDY_FILE = "t1.csv", "t2.csv", TIDY_FILES["persons"]


def write(folder: Path, parts, noise: CountNoise = NOISE) -> None:
    """The release of what is not suppressed of some groups."""
    tables = [(SEX_BY_AGE, map(select_released, parts), noise)]
    write_release(folder, tables, NAMES)


def groups_of(seed: int, n: int = 60) -> pa.Table:
    random = np.random.default_rng(seed)
    table = random.integers(0, 4, n)
    values = [random.integers(-9, 40, 2 * len(AGES[t]) if t else 1).tolist() for t in table]
    columns = {
        "region_type": [["COUNTY", "STATE"][i % 2] for i in range(n)],
        "region_id": [["44001", "44"][i % 2] for i in range(n)],
        "iteration_code": [["0002", "1001"][(i // 2) % 2] for i in range(n)],
        "table": table,
        "total_only": [t == 0 and i % 3 == 0 for i, t in enumerate(table)],
        "value": values,
        "variance": random.integers(1, 5, n).astype(float),
    }
    arrays = [pa.array(columns[field.name]) for field in MEASURED]
    coded = [
        a.dictionary_encode() if pa.types.is_dictionary(field.type) else a.cast(field.type)
        for a, field in zip(arrays, MEASURED, strict=True)
    ]
    groups = suppress(pa.table(coded, schema=MEASURED), 5)
    return groups if seed % 2 else cut_counts(groups)


def rows_by_loops(groups: pa.Table) -> tuple[list[tuple], list[tuple]]:
    t1, t2 = [], []
    for group in groups.to_pylist():
        if group["is_suppressed"]:
            continue
        key = group["region_id"], group["region_type"], group["iteration_code"]
        t1.append((*key, str(sum(group["value"]))))
        if group["table"]:
            starts = AGES[group["table"]]
            ends = [*(start - 1 for start in starts[1:]), 115]
            for sex in (0, 1):
                own = group["value"][sex * len(starts) : (sex + 1) * len(starts)]
                t2.append((*key, "*", "*", str(sex + 1), str(sum(own))))
                t2 += [
                    (*key, str(start), str(end), str(sex + 1), str(count))
                    for start, end, count in zip(starts, ends, own, strict=True)
                ]
    return t1, t2


def read_text(path: Path) -> list[tuple]:
    with path.open(newline="") as file:
        return [tuple(row) for row in csv.reader(file, delimiter="|", quoting=csv.QUOTE_NONE)]


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_the_text_files(tmp_path: Path, seed: int) -> None:
    parts = [groups_of(seed), groups_of(seed + 10)]
    write(tmp_path, parts)
    t1, t2 = (sum(rows, []) for rows in zip(*map(rows_by_loops, parts), strict=True))
    header1, *found1 = read_text(tmp_path / T1)
    header2, *found2 = read_text(tmp_path / T2)
    assert header1 == ("REGION_ID", "REGION_TYPE", "ITERATION_CODE", "COUNT")
    assert header2 == (*header1[:3], "AGESTART", "AGEEND", "SEX", "COUNT")
    assert sorted(found1) == sorted(t1)
    assert sorted(found2) == sorted(t2)
    assert b"\r" not in (tmp_path / T2).read_bytes()


@pytest.mark.parametrize("seed", range(2))
def test_tidy_file_says_the_same_and_names_it(tmp_path: Path, seed: int) -> None:
    groups = groups_of(seed)
    write(tmp_path, [groups])
    with pq.ParquetFile(tmp_path / TIDY_FILE) as file:
        tidy = file.read()
        assert file.schema_arrow.names == tidy_schema(SEX_BY_AGE).names
    shown = lambda age: "*" if age is None else str(age)  # noqa: E731
    key = ("region_id", "region_type", "iteration_code")
    sex = {"male": "1", "female": "2"}
    t1, t2 = [], []
    variance = {tuple(g[k] for k in key): g["variance"] for g in groups.to_pylist()}
    for row in tidy.to_pylist():
        own = tuple(row[name] for name in key)
        if row["sex"] == "total":
            assert row["table"] == "T01001"
            t1.append((*own, str(row["count"])))
        else:
            ages = shown(row["age_start"]), shown(row["age_end"])
            t2.append((*own, *ages, sex[row["sex"]], str(row["count"])))
        assert row["measured_at"] == row["region_type"]
        assert row["iteration_name"] == NAMES.iterations[row["iteration_code"]].name
        assert row["iteration_level"] == NAMES.iterations[row["iteration_code"]].level
        assert row["region_name"] == name_of_codes(row["region_type"], row["region_id"])
    assert sorted(t1) == sorted(read_text(tmp_path / T1)[1:])
    assert sorted(t2) == sorted(read_text(tmp_path / T2)[1:])
    assert set(variance)


def test_variance_of_a_sum_and_tables(tmp_path: Path) -> None:
    groups = groups_of(3)
    large = groups.filter(pa.array(groups["table"].to_numpy() == 3)).slice(0, 1)
    write(tmp_path, [large])
    tidy = pq.read_table(tmp_path / TIDY_FILE).to_pylist()
    noise = large["variance"].to_pylist()[0]
    assert len(tidy) == 49
    for row in tidy:
        cells = 46 if row["sex"] == "total" else 23 if row["age_start"] is None else 1
        assert row["variance"] == cells * noise
        level = row["region_type"], row["iteration_level"]
        assert row["margin"] == margin_of_sum(
            ((NOISE.levels[level].second_stage, cells),), NOISE.coverage
        )
        assert row["table"] == ("T01001" if row["sex"] == "total" else "T02003")


def test_margins_are_those_of_the_region_that_was_measured(tmp_path: Path) -> None:
    """A single count has the margin of its own noise, wherever its counts come from."""
    groups = groups_of(2)
    totals = groups.filter(pa.array(groups["table"].to_numpy() == 0))
    lent = totals.set_column(
        totals.schema.get_field_index("measured_at"),
        "measured_at",
        pa.array(["STATE"] * totals.num_rows).dictionary_encode(),
    )
    write(tmp_path, [lent])
    only = [g["total_only"] for g in lent.to_pylist() if not g["is_suppressed"]]
    tidy = pq.read_table(tmp_path / TIDY_FILE).to_pylist()
    assert set(only) == {True, False}
    for row, is_only in zip(tidy, only, strict=True):
        assert row["measured_at"] == "STATE"
        budget = NOISE.levels["STATE", row["iteration_level"]]
        noise = budget.of_released(is_total_only=is_only)
        assert row["margin"] == margin(noise, NOISE.coverage)


def test_sums_of_cut_counts_have_a_wider_margin(tmp_path: Path) -> None:
    groups = groups_of(2)
    for are_cut in (False, True):
        noise = dataclasses.replace(NOISE, are_cut=are_cut)
        write(tmp_path, [groups], noise)
        tidy = pq.read_table(tmp_path / TIDY_FILE).to_pandas()
        is_sum = (tidy["variance"] > 20) & tidy["age_start"].isna()
        assert is_sum.any() and not is_sum.all()
        wider = tidy["margin_if_cut"] > tidy["margin"]
        assert wider[is_sum].all() if are_cut else not wider.any()
        cells = tidy["age_start"].notna()
        assert (tidy["margin_if_cut"] == tidy["margin"])[cells].all()


def test_stamp(tmp_path: Path) -> None:
    mark_not_private(tmp_path)
    write(tmp_path, [groups_of(1)])
    for name in (T1, T2):
        assert (tmp_path / name).read_text().startswith(f"# {NOT_PRIVATE}\nREGION_ID|")
    metadata = pq.read_schema(tmp_path / TIDY_FILE).metadata
    assert metadata[b"spineflow"] == NOT_PRIVATE.encode()


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    def parts():
        yield groups_of(1)
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        write(tmp_path, parts())
    assert list(tmp_path.iterdir()) == []
