from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.answers.noisy import (
    Constraint,
    NoisyAnswers,
    read_constraints,
    read_measurements,
    write_constraints,
    write_measurements,
)
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.paths import constraints_file


def answers(query_name: str, codes: list[str], n_rows: int, seed: int) -> NoisyAnswers:
    values = np.random.default_rng(seed).integers(-(2**40), 2**40, (len(codes), n_rows))
    variance = np.arange(1, len(codes) + 1) / 3
    plb = np.array([f"1/{i + 2}" for i in range(len(codes))], dtype=object)
    return NoisyAnswers(query_name, np.array(codes, dtype=object), values, variance, plb)


@pytest.fixture
def shard(tmp_path):
    groups = [
        [answers("total_dpq", ["a1", "a2", "b1"], 1, 1), answers("sex_dpq", ["a1", "b1"], 2, 2)],
        [answers("total_dpq", ["b2", "c1"], 1, 3), answers("sex_dpq", ["b2"], 2, 4)],
    ]
    return write_measurements(tmp_path / "0.parquet", iter(groups)), groups


def test_folders():
    run = RunDirectory(Path("run"))
    assert str(run.dpqueries("persons", "Block", "00000").parent).endswith(
        "run/measurements/persons/Block/dpqueries"
    )
    assert str(constraints_file(run, "units", "US", "00000").parent).endswith(
        "run/measurements/units/US/constraints"
    )


def test_columns_and_types_are_the_contract(shard):
    path, groups = shard
    schema = pq.read_schema(path)
    assert schema.names == ["geocode", "query_name", "value", "variance", "plb"]
    assert [str(field.type) for field in schema] == [
        "string",
        "string",
        "list<element: int64 not null>",
        "double",
        "string",
    ]
    frame = pq.read_table(path).to_pandas()
    assert frame["geocode"].tolist() == ["a1", "a2", "b1", "a1", "b1", "b2", "c1", "b2"]
    assert frame["plb"].tolist()[:3] == ["1/2", "1/3", "1/4"]
    assert frame["value"].iloc[4].tolist() == groups[0][1].values[1].tolist()
    assert pq.ParquetFile(path).num_row_groups == 2


def test_answers_are_aligned_to_the_geounits_asked_for(shard):
    path, groups = shard
    found = read_measurements(path, ["b2", "a2", "zz", "a1"])
    total, sex = found["total_dpq"], found["sex_dpq"]
    (first_total, first_sex), (second_total, second_sex) = groups
    assert total.values.tolist() == [
        second_total.values[0].tolist(),
        first_total.values[1].tolist(),
        [0],
        first_total.values[0].tolist(),
    ]
    assert total.variance.tolist() == [1 / 3, 2 / 3, np.inf, 1 / 3]
    assert sex.values[[0, 3]].tolist() == [
        second_sex.values[0].tolist(),
        first_sex.values[0].tolist(),
    ]
    assert np.isinf(sex.variance[[1, 2]]).all()


def test_several_files_are_read_as_one(shard, tmp_path):
    path, groups = shard
    further = write_measurements(tmp_path / "1.parquet", [[answers("total_dpq", ["d1"], 1, 5)]])
    found = read_measurements([path, further], ["d1", "a1"])
    assert np.isfinite(found["total_dpq"].variance).all()
    assert read_measurements([path, further], []) == {}
    assert read_measurements([path, further], ["nowhere"]) == {}


def test_an_answer_that_stands_twice_is_refused(shard, tmp_path):
    path, _ = shard
    again = write_measurements(tmp_path / "1.parquet", [[answers("total_dpq", ["a1"], 1, 5)]])
    with pytest.raises(ValueError, match="total_dpq was measured twice"):
        read_measurements([path, again], ["a1"])


def test_a_published_file_stops_the_drawing(shard):
    path, _ = shard
    before = path.read_bytes()

    def drawing():
        raise AssertionError("drawn again")
        yield

    assert write_measurements(path, drawing()) == path
    assert path.read_bytes() == before


def test_a_shard_without_answers_is_an_empty_file(tmp_path):
    path = write_measurements(tmp_path / "0.parquet", iter([]))
    assert pq.read_table(path).num_rows == 0
    assert read_measurements(path, ["a1"]) == {}


def test_constraints_come_back_by_name_and_sign(tmp_path):
    codes = np.array(["a", "b", "c"], dtype=object)
    bounds = np.arange(24).reshape(3, 8)
    path = write_constraints(
        tmp_path / "0.parquet",
        [
            Constraint("hhgq_total_ub_con", "<=", codes, bounds),
            Constraint("hhgq_total_lb_con", ">=", codes, bounds // 2),
            Constraint("state_total_con", "=", codes[:1], np.array([[1052567]])),
        ],
    )
    found = read_constraints(path, ["c", "x", "a"])
    assert set(found) == {
        ("hhgq_total_ub_con", "<="),
        ("hhgq_total_lb_con", ">="),
        ("state_total_con", "="),
    }
    upper = found["hhgq_total_ub_con", "<="]
    assert upper.values.tolist() == [bounds[2].tolist(), [0] * 8, bounds[0].tolist()]
    assert upper.holds.tolist() == [True, False, True]
    assert found["state_total_con", "="].holds.tolist() == [False, False, True]
    assert pq.read_schema(path).names == ["geocode", "query_name", "sign", "value"]


def test_constraints_need_a_known_sign_and_stand_once(tmp_path):
    codes, values = np.array(["a"], dtype=object), np.array([[1]])
    with pytest.raises(ValueError, match="unknown sign '<'"):
        write_constraints(tmp_path / "0.parquet", [Constraint("total_con", "<", codes, values)])
    assert list(tmp_path.iterdir()) == []
    twice = [Constraint("total_con", "=", codes, values)] * 2
    path = write_constraints(tmp_path / "1.parquet", twice)
    with pytest.raises(ValueError, match="constrains a geounit twice"):
        read_constraints(path, ["a"])
