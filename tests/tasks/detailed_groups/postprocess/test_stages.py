"""The stages through files give what the plain functions give on all groups at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from spineflow.tasks.detailed_groups.postprocess import (
    ALONE,
    COTERMINOUS,
    MARGINALS,
    SCREENED,
    SUPPRESSED,
    PassFiles,
    change_levels,
    copy_coterminous,
    coterminous_sets,
    cut_counts,
    donate_between_levels,
    levels_after,
    read_groups,
    sets_of_rows,
    suppress,
    suppress_alone,
    write_groups,
)

TYPES = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
LEVELS = tuple((name, 2) for name in TYPES)
SETS = coterminous_sets({name: ["0", "1", "2", "2"] for name in ("STATE", "TRACT", "PLACE")})
COUNTERPARTS = {"1001": "1002", "1003": "1004"}


@pytest.fixture
def files(tmp_path: Path, random_groups) -> PassFiles:
    """Measurements of every level, each in two files, one of them with other dictionaries."""
    found = PassFiles(tmp_path / "measured", tmp_path / "derived", LEVELS)
    measured = random_groups(5)
    for region_type, _ in LEVELS:
        own = measured.filter(pc.equal(measured["region_type"], region_type))
        for name, part in (("a", own.slice(0, 7)), ("b", own.slice(7))):
            path = found.measured / region_type / "2" / "shards" / f"{name}.parquet"
            write_groups(path, part.append_column("plb", pa.array(["1/9"] * part.num_rows)))
    return found


def in_order(groups: pa.Table) -> list[dict]:
    rows = groups.to_pylist()
    key = ("region_type", "region_id", "iteration_code")
    return sorted(rows, key=lambda row: tuple(row[name] for name in key))


def make_all(files: PassFiles, thresholds: dict, before_alone: str) -> None:
    """All stages, one after the other."""
    change_levels(files, None, SUPPRESSED, lambda level, own: suppress(own, thresholds[level]))
    change_levels(files, SUPPRESSED, MARGINALS, lambda _, own: cut_counts(own))
    donate_between_levels(files, SETS, TYPES)
    change_levels(files, before_alone, ALONE, lambda _, own: suppress_alone(own, COUNTERPARTS))


def test_stages_one_after_the_other(files: PassFiles, random_groups) -> None:
    thresholds = {level: None if level[0] in ("USA", "STATE") else 4 for level in LEVELS}
    make_all(files, thresholds, COTERMINOUS)

    measured = random_groups(5)
    parts = [
        suppress(measured.filter(pc.equal(measured["region_type"], name)), thresholds[name, 2])
        for name in TYPES
    ]
    expected = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    assert in_order(read_all(files, SUPPRESSED)) == in_order(expected)
    expected = cut_counts(expected)
    assert in_order(read_all(files, MARGINALS)) == in_order(expected)
    expected = copy_coterminous(expected, sets_of_rows(expected, SETS), TYPES)
    assert in_order(read_all(files, COTERMINOUS)) == in_order(expected)
    expected = suppress_alone(expected, COUNTERPARTS)
    assert in_order(read_all(files, ALONE)) == in_order(expected)


def read_all(files: PassFiles, stage: str) -> pa.Table:
    return read_groups([files.groups(stage, level) for level in LEVELS], SCREENED)


def test_a_level_without_regions(tmp_path: Path) -> None:
    files = PassFiles(tmp_path / "measured", tmp_path / "derived", (("AIANNH", 2),))
    assert not files.are_there(SUPPRESSED)
    make_all(files, {("AIANNH", 2): 3}, MARGINALS)
    assert all(files.are_there(stage) for stage in (SUPPRESSED, MARGINALS, COTERMINOUS, ALONE))
    assert sum(groups.num_rows for _, groups in levels_after(files, ALONE)) == 0
