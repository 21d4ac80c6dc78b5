"""The methods that a comparison shows where its settings name none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OFFERED: Mapping[str, Mapping[str, Any]] = {
    "nothing": {"kind": "nothing"},
    "rounding_nearest": {"kind": "rounding", "how": "nearest", "bases": [3, 5, 10]},
    "rounding_random": {"kind": "rounding", "how": "random", "bases": [3, 5, 10]},
    "rounding_controlled": {"kind": "rounding", "how": "controlled", "bases": [3, 5]},
    "ranges": {"kind": "coarsening", "how": "ranges", "thresholds": [3, 5, 10]},
    "minimum_size": {"kind": "coarsening", "how": "minimum_size", "thresholds": [50, 100, 500]},
    "suppressed_cells": {"kind": "suppression", "how": "cells", "thresholds": [3, 5]},
    "suppressed_tables": {"kind": "suppression", "how": "tables", "thresholds": [15, 50]},
    "swapping_american": {"kind": "swapping", "how": "american", "rates": ["1/50", "1/20", "1/10"]},
    "swapping_european": {"kind": "swapping", "how": "european", "rates": ["1/50", "1/20", "1/10"]},
    "cell_keys": {"kind": "cell_keys", "variances": ["1", "3"]},
    "cell_keys_without_1_and_2": {"kind": "cell_keys", "variances": ["3"], "threshold": 2},
    "cell_keys_additive": {"kind": "cell_keys", "variances": ["1", "3"], "additive": True},
    "topdown": {"kind": "differential_privacy", "rho": ["1/10", "1", "10"]},
    "full_information": {
        "kind": "differential_privacy",
        "estimator": "full_information",
        "rho": ["1/10", "1", "10"],
    },
    "block_by_block": {
        "kind": "differential_privacy",
        "estimator": "block_by_block",
        "rho": ["1/10", "1", "10"],
    },
}
"""Each in the range of parameters that offices use."""
