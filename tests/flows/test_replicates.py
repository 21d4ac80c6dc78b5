"""Means of figures over replicates."""

from __future__ import annotations

import pandas as pd
import pytest
from spineflow.tasks.study.trials import mean_errors


def test_means_are_taken_row_by_row() -> None:
    both = pd.DataFrame({"level": [1, 2, 2, 1], "error": [1, 5, 7, None]})
    found = mean_errors(both, ["level"], ["error"], ("std", "s.d.")).set_index("level")
    assert found["error"].to_dict() == {1: 1.0, 2: 6.0}
    assert found.loc[2, "error, s.d."] == pytest.approx(2**0.5)
