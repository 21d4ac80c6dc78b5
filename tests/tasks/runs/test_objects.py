"""Objects in files: what is read again, and what a file must not name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from spineflow.tasks.runs.objects import read_object, write_object


@dataclass(frozen=True)
class Record:
    of: Any


def test_tables_and_arrays_are_read_again(tmp_path: Path) -> None:
    frame = pd.DataFrame({"code": pd.array(["01", None], dtype="str"), "number": [1, 2]})
    histogram = sparse.csr_array(np.eye(3, dtype=np.int64))
    texts = pa.array(["a", None], pa.large_string())
    plain = {("a", True): [1, None, 0.5, "b"], None: (tmp_path, frozenset("c")), 1: np.dtype("i4")}
    write_object(tmp_path / "one", Record([frame, histogram, texts, np.arange(3), Record(plain)]))
    found = read_object(tmp_path / "one", {"Record": Record}).of
    pd.testing.assert_frame_equal(found[0], frame)
    assert (found[1] != histogram).nnz == 0 and found[2].equals(texts)
    assert found[3].tolist() == [0, 1, 2] and not found[3].flags.writeable
    assert found[4] == Record(plain)


def test_types_that_the_reader_does_not_name_are_not_loaded(tmp_path: Path) -> None:
    write_object(tmp_path / "one", Record(Record(1)))
    with pytest.raises(KeyError):
        read_object(tmp_path / "one", {})
