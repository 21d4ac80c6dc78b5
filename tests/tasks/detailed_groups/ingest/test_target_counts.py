"""The production program's non-private counts of its toy input, row for row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.detailed_groups.ingest.inputs import check_groups_input
from spineflow.tasks.detailed_groups.ingest.target_counts import target_counts, write_target_counts
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.detailed_groups.workload.regions import areas_of


def counts_of(parameters_folder: Path, data: Path, **changes) -> dict[str, pd.DataFrame]:
    specification = read_specification(str(parameters_folder))
    parameters = replace(read_parameters(str(parameters_folder), {}), **changes)
    result = check_groups_input({"data": str(data)}, specification, parameters).accepted()
    return target_counts(result.persons, areas_of(result.blocks)[1], specification, parameters)


def rows(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    return sorted(map(tuple, frame.astype(str).to_numpy()))


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_toy_counts_are_the_expected_ones(shared: Path, definition: str) -> None:
    toy = shared / "data" / "safetab" / "toy"
    found = counts_of(toy / f"input_dir_{definition}", toy)
    for name, n_rows in (("t1", 395), ("t2", 23_544)):
        own = found[name]
        path = shared / "data" / "safetab" / "toy_expected" / f"{name}.csv"
        expected = pd.read_csv(path, sep="|", dtype=str)
        assert len(own) == n_rows
        assert rows(own) == rows(expected[own.columns])


@pytest.mark.soak(2)
def test_puerto_rico_has_the_iterations_of_both_granularities(groups_input: Path) -> None:
    """The fault of the production program, kept in what is compared with it."""
    specification = read_specification(str(groups_input / "params"))
    found = counts_of(groups_input / "params", groups_input / "data")["t1"]
    detailed_only = {
        code
        for code, item in specification.iterations.items()
        if item.detailed_only and item.level == 2
    }
    assert detailed_only
    shown = {kind: set(own["ITERATION_CODE"]) for kind, own in found.groupby("REGION_TYPE")}
    assert not shown["TRACT"] & detailed_only
    assert shown["PR-TRACT"] >= detailed_only
    assert not found.duplicated(["REGION_ID", "REGION_TYPE", "ITERATION_CODE"]).any()


def test_target_counts_are_written_as_the_production_program_does(tmp_path: Path) -> None:
    counts = {
        "t1": pd.DataFrame({"REGION_ID": ["1"], "COUNT": [3]}),
        "t2": pd.DataFrame({"REGION_ID": ["1"], "SEX": ["2"], "COUNT": [0]}),
    }
    paths = write_target_counts(tmp_path, counts)
    assert paths == (tmp_path / "t1.csv", tmp_path / "t2.csv")
    first, second = (path.read_text() for path in paths)
    assert (first, second) == ("REGION_ID|COUNT\n1|3\n", "REGION_ID|SEX|COUNT\n1|2|0\n")
