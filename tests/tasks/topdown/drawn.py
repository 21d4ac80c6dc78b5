"""Declared censuses drawn at random, with tables that meet all that they declare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

NAMES = ("part", "region", "province", "area")
"""Geolevels below the root, of which a census has the last."""

ALPHABET = np.array(list("aZ0.-_~/ é%"))


def code(rng: np.random.Generator, number: int) -> str:
    """A code of any alphabet and width that no other number has."""
    return "".join(rng.choice(ALPHABET, rng.integers(0, 4))).strip() + f"x{number}"


def draw_census(folder: Path, seed: int, *, most_geolevels: int = 4) -> dict:
    """Settings, with tables in `folder`, of a census whose data meet all that it declares."""
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(1, most_geolevels))
    levels = ["all", *NAMES[len(NAMES) - depth :]]
    rows = [()]
    for level in range(depth):
        rows = [
            (*row, code(rng, i + 100 * level))
            for row in rows
            for i in range(int(rng.integers(1, 4)))
        ]
    areas = pd.DataFrame(rows, columns=levels[1:])
    areas["zone"] = rng.choice(["north", "south", ""], len(areas))
    areas.to_csv(folder / "areas.csv", index=False)
    n_kinds, n_ages = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    dwellings, persons = [], []
    for _, area in areas.iterrows():
        for _ in range(int(rng.integers(0, 6))):
            key, occupied = f"d{len(dwellings)}", rng.random() < 0.8
            dwellings.append({"id": key, "state": "1" if occupied else "0", **area[levels[1:]]})
            for i in range(int(rng.integers(1, 5)) if occupied else 0):
                age = int(rng.integers(18, 90)) if i == 0 else int(rng.integers(0, 90))
                rel = "h" if i == 0 else ("s" if i == 1 and rng.random() < 0.5 else "o")
                kind = str(rng.integers(0, n_kinds))
                persons.append({"home": key, "age": age, "rel": rel, "kind": kind})
    frame = pd.DataFrame(dwellings, columns=["id", "state", *levels[1:]], dtype=str)
    frame.to_parquet(folder / "dwellings.parquet")
    frame = pd.DataFrame(persons, columns=["home", "age", "rel", "kind"])
    frame.astype({"age": int}).to_parquet(folder / "persons.parquet")
    below = levels[1:]
    # A branch cuts through all geolevels but the first, whose answers cannot be held there.
    is_optimized = depth > 1 and rng.random() < 0.5
    geography: dict = {"table": "areas", "geolevels": levels}
    held = list(levels)
    if is_optimized:
        geography["categories"] = {"zone": {"column": "zone"}}
    if rng.random() < 0.3 and areas["zone"].isin(["north"]).any():
        geography["branch"] = {"column": "zone", "codes": ["north"]}
        held = [name for name in held if name in (levels[0], levels[1], levels[-1])]
    universe = {
        "table": "persons",
        "attributes": ["role", "kind", "age"],
        "through": {"column": "home", "table": "dwellings", "key": "id"},
        "area": below,
        "structural_zeros": [{"name": "young_heads", "where": {"role": ["head"], "age": ["0-17"]}}],
        "bounds": [{"query": "total", "per": "dwellings", "at_least": 0, "at_most": 4}],
        "invariants": [],
        "relations": [],
    }
    if rng.random() < 0.7:
        universe["invariants"].append({"query": "total", "geolevel": str(rng.choice(held))})
    if rng.random() < 0.5:
        universe["invariants"].append({"query": "kind", "geolevel": str(rng.choice(held))})
    if rng.random() < 0.5:
        universe["relations"].append(
            {
                "name": "spouses_have_heads",
                "left": [{"where": {"role": ["spouse"]}}],
                "sign": "<=",
                "right": [{"where": {"role": ["head"]}}],
            }
        )
    # Exact numbers of persons and a noisy number of heads may have no solution together.
    if rng.random() < 0.5 and not universe["invariants"]:
        universe["relations"].append(
            {
                "name": "heads",
                "left": [{"where": {"role": ["head"]}}],
                "sign": "=",
                "right": [{"universe": "dwellings", "where": {"state": ["occupied"]}}],
            }
        )
    edges = [0, 18, *sorted(rng.choice(np.arange(19, 80), n_ages - 2, replace=False).tolist())]
    return {
        "census": {
            "geography": geography,
            "attributes": {
                "kind": {
                    "column": "kind",
                    "levels": {f"kind {i}": [str(i)] for i in range(n_kinds)},
                },
                "age": {"column": "age", "bins": edges[:n_ages], "largest": 99},
                "role": {
                    "rules": [
                        {"level": "head", "where": {"rel": ["h"]}},
                        {"level": "spouse", "where": {"rel": ["s"]}},
                        {"level": "other", "where": {}},
                    ]
                },
                "state": {"column": "state", "levels": {"vacant": ["0"], "occupied": ["1"]}},
            },
            "coarsenings": {
                "family": {
                    "attribute": "role",
                    "levels": {"couple": ["head", "spouse"], "rest": ["other"]},
                }
            },
            "universes": {
                "dwellings": {
                    "table": "dwellings",
                    "attributes": ["state"],
                    "area": below,
                    "invariants": [{"query": "total", "geolevel": levels[-1]}],
                },
                "persons": universe,
            },
            "tables": [
                {
                    "name": "T",
                    "universe": "persons",
                    "query": "family * kind",
                    "levels": [*levels, "zone"],
                }
            ],
        },
        "input": {
            "areas": "areas.csv",
            "persons": "persons.parquet",
            "dwellings": "dwellings.parquet",
            "confidential": False,
        },
        "privacy": {"dataset": "drawn", "seed": seed},
        "geography": {"spine": "optimized" if is_optimized else "conventional"},
        "budget": {
            "persons": {
                "rho": "1",
                "delta": "1e-10",
                "queries": {"other": {"total": "1/3", "family": "1/3", "detailed": "1/3"}},
            },
            "dwellings": {
                "rho": "1/2",
                "delta": "1e-10",
                "queries": {"other": {"detailed": "1"}},
            },
        },
    }
