"""A made-up town of a declared census, small enough to be released in seconds."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd

RESIDENTS = 900

SETTINGS: dict[str, Any] = {
    "census": {
        "geography": {"table": "areas", "geolevels": ["country", "region", "section"]},
        "attributes": {
            "sex": {"column": "sex", "levels": {"female": ["f"], "male": ["m"]}},
            "age": {
                "column": "age",
                "bins": [0, 18, 65],
                "largest": 115,
                "labels": ["child", "adult", "old"],
            },
        },
        "coarsenings": {
            "minor": {"attribute": "age", "levels": {"yes": ["child"], "no": ["adult", "old"]}}
        },
        "universes": {
            "residents": {"table": "residents", "attributes": ["sex", "age"], "area": "section"}
        },
        "tables": [
            {
                "name": "AGE_SEX",
                "universe": "residents",
                "query": "sex * age",
                "levels": ["region", "section"],
            }
        ],
    },
    "geography": {"spine": "conventional"},
    "run": {"universes": ["residents"]},
    "budget": {
        "residents": {
            "rho": "1",
            "delta": "1e-10",
            "geolevels": {"country": "1/4", "region": "1/4", "section": "1/2"},
            "queries": {
                name: {"total": "1/4", "sex * minor": "1/4", "sex * age": "1/2"}
                for name in ("country", "region", "section")
            },
        }
    },
}
"""Settings without [input] and [privacy]."""


def settings(**sections: Any) -> dict[str, Any]:
    """The settings with further sections."""
    return deepcopy(SETTINGS) | sections


def areas() -> pd.DataFrame:
    """Six sections in two regions."""
    return pd.DataFrame({"region": list("NNNSSS"), "section": ["N1", "N2", "N3", "S1", "S2", "S3"]})


def residents(seed: int = 1) -> pd.DataFrame:
    """A row a person."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "section": random.choice(areas()["section"], RESIDENTS),
            "sex": random.choice(["f", "m"], RESIDENTS),
            "age": random.integers(0, 100, RESIDENTS),
        }
    )


def true_counts(frame: pd.DataFrame) -> pd.Series:
    """Residents by section, sex and age group, zeros left out."""
    ages = pd.cut(frame["age"], [-1, 17, 64, 115], labels=["child", "adult", "old"]).astype(str)
    return (
        frame.assign(age=ages, sex=frame["sex"].map({"f": "female", "m": "male"}))
        .groupby(["section", "sex", "age"])
        .size()
    )
