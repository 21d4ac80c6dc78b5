"""Tables concatenated from parts equal tables written at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.runs import stamps
from spineflow.tasks.runs.stamps import RowsForm, concatenate_rows, write_rows

from tests.parquet_pages import mark_not_private

SCHEMA = pa.schema(
    {f"n{i}": pa.int64() for i in range(20)}
    | {"code": pa.dictionary(pa.int32(), pa.string()), "empty": pa.string()}
)


def batch(n_rows: int) -> dict[str, pa.Array]:
    rng = np.random.default_rng(n_rows)
    columns = {f"n{i}": pa.array(rng.integers(-5, 10**6, n_rows)) for i in range(20)}
    codes = pa.array(rng.integers(0, 99, n_rows).astype(str)).dictionary_encode()
    return columns | {"code": codes, "empty": pa.nulls(n_rows, pa.string())}


@pytest.mark.parametrize("is_private", [True, False])
@pytest.mark.parametrize("keeps_types", [True, False])
def test_parts_give_the_whole(
    tmp_path: Path, is_private: bool, keeps_types: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, form = [batch(n) for n in range(1, 40)], RowsForm("|", keeps_types=keeps_types)
    if not is_private:
        mark_not_private(tmp_path)
    whole = write_rows(tmp_path / "whole", SCHEMA, batches, form)
    monkeypatch.setattr(stamps, "ROWS_PER_GROUP", 20)
    parts = []
    for number, (start, stop) in enumerate([(0, 1), (1, 4), (4, 4), (4, 39)]):
        parts.append(tmp_path / str(number))
        write_rows(parts[-1], SCHEMA, batches[start:stop], form)
    joined = concatenate_rows(tmp_path / "joined", parts)
    assert joined.read_bytes() == whole.read_bytes()
    files = [path.with_suffix(".parquet") for path in (joined, whole)]
    one, other = map(pq.read_table, files)
    assert one.schema.equals(other.schema, check_metadata=True)
    assert one.to_pydict() == other.to_pydict()
    first, second = map(pq.read_metadata, files)
    assert first.metadata == second.metadata
    sizes = [first.row_group(number).num_rows for number in range(first.num_row_groups)]
    assert sizes[:4] == [1 + 2 + 3 + 4 + 5 + 6, 7 + 8 + 9, 10 + 11, 12 + 13]
    assert sizes[-20:] == [*range(20, 40)]
    assert not list(tmp_path.glob("[0-9]*"))


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    written = write_rows(tmp_path / "0", SCHEMA, [batch(9)]).with_suffix(".parquet")
    written.write_bytes(written.read_bytes()[:-1])
    with pytest.raises(pa.ArrowInvalid):
        concatenate_rows(tmp_path / "joined", [tmp_path / "0"])
    assert not (tmp_path / "joined.csv").exists()
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(written)
