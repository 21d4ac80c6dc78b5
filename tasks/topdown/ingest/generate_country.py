"""A generated country abroad: areas, dwellings and persons in tables of its own.

Nobody lives there. Codes are texts of several alphabets and widths, section codes are unique in the
whole country, and a school district is a column of the areas that no geolevel nests in.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

REGIONS = ("Nord", "Süd", "Île-Ouest", "Est/2")
MUNICIPALITIES, SECTIONS, DWELLINGS = 8, 12, 25
"""Municipalities of a region, sections of a municipality, mean dwellings of a section."""


def generate_country(folder: Path, *, seed: int = 2020) -> None:
    """Write `areas.csv`, `dwellings.parquet` and `persons.parquet` into a folder."""
    rng = np.random.default_rng(seed)
    region = np.repeat(np.arange(len(REGIONS)), MUNICIPALITIES * SECTIONS)
    municipality = np.tile(np.repeat(np.arange(MUNICIPALITIES), SECTIONS), len(REGIONS))
    n_sections = len(region)
    section = [f"S.{number:X}" for number in range(4000, 4000 + n_sections)]
    school = (np.arange(n_sections) + rng.integers(0, 9, n_sections)) // 20
    areas = {
        "region": [REGIONS[i] for i in region],
        "municipality": [f"m{i}" for i in municipality],
        "section": section,
        "school": ["none" if i % 7 == 0 else f"district {i}" for i in school],
        "town": [f"{REGIONS[i]}, town {1 + j}" for i, j in zip(region, municipality, strict=True)],
        "latitude": [f"{52 + 0.5 * i:.4f}" for i in region],
        "longitude": [f"{-3 + 0.4 * j:.4f}" for j in municipality],
    }
    pacsv.write_csv(pa.table(areas), folder / "areas.csv")

    of_section = np.repeat(np.arange(n_sections), rng.poisson(DWELLINGS, n_sections))
    n = len(of_section)
    identifier = [f"D{i:06d}" for i in range(n)]
    dwellings = {
        "id": identifier,
        "section": [section[i] for i in of_section],
        "tenure": rng.choice(["1", "2", "3", "9", ""], n, p=[0.35, 0.2, 0.38, 0.05, 0.02]),
        "rooms": 1 + rng.poisson(2.4, n),
    }
    pq.write_table(pa.table(dwellings), folder / "dwellings.parquet")

    people = np.minimum(rng.poisson(2.3, n), 12)
    home = np.repeat(np.arange(n), people)
    age = np.minimum((rng.beta(1.3, 1.9, len(home)) * 105).astype(np.int64), 110)
    may_marry = age >= 16
    spouse = may_marry & (rng.random(len(home)) < 0.5)
    former = may_marry & ~spouse & (rng.random(len(home)) < 0.25)
    persons = {
        "dwelling": [identifier[i] for i in home],
        "sex": rng.choice(["F", "M"], len(home)),
        "age": age,
        "citizenship": rng.choice(
            ["N", "A", "B", "C", "X", "0"], len(home), p=[0.82, 0.05, 0.04, 0.03, 0.05, 0.01]
        ),
        "spouse": np.where(spouse, "Y", ""),
        "former": np.where(former, "1", "0"),
    }
    pq.write_table(pa.table(persons), folder / "persons.parquet")
