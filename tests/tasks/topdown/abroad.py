"""A census as an office abroad has it on its disk: invented, of a few hundred persons.

Semicolons, decimal commas, windows-1252 or latin-1, codes for what is missing, dates of birth,
several languages in one cell, and a city that is a region without districts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

SETTINGS = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")

AREAS = """Region;Bezirk;Gemeinde;Name;Breite;Länge
Süd;S1;g1;Bärnau;47,5;8,25
Süd;S1;g2;Cham;47,25;8,5
Süd;S2;g3;Zürs;47,0;9,0
Stadt;;g4;Möwenstadt;46,125;7,0
Stadt;;g5;Möwenhafen;46,25;7,5
"""
PLACES = [("Süd", "S1", "g1"), ("Süd", "S1", "g2"), ("Süd", "S2", "g3"), ("Stadt", "", "g4")]
"""Where people live; nobody lives in the last area."""


def write_census(folder: Path, n: int = 400, encoding: str = "latin-1") -> Path:
    """The tables and the settings file, whose path is returned."""
    rng = np.random.default_rng(3)
    folder.mkdir(parents=True, exist_ok=True)
    people = ["Region;Bezirk;Gemeinde;geboren;Geschlecht;Sprache"]
    for _ in range(n):
        year, month, day = rng.integers(1925, 2021), rng.integers(1, 13), rng.integers(1, 29)
        born = f"{day:02d}.{month:02d}.{year}" if rng.random() > 0.05 else "NA"
        spoken = ("de", "it", "rm")[rng.integers(3)]
        if born != "NA" and year < 2000 and rng.random() < 0.4:
            spoken = "fr"
        place = ";".join(PLACES[rng.integers(len(PLACES))])
        people.append(f"{place};{born};{'wm'[rng.integers(2)]};{spoken}")
    dwellings = ["Gemeinde;Fläche;bewohnt"]
    for _ in range(n // 2):
        area = f"{rng.integers(1, 200)},{rng.integers(0, 10)}"
        dwellings.append(f"g{rng.integers(1, 6)};{area};{('ja', 'nein')[rng.integers(2)]}")
    tables = {"Gebiete": AREAS, "Bevölkerung": "\n".join(people), "Wohnungen": "\n".join(dwellings)}
    for name, text in tables.items():
        (folder / f"{name}.csv").write_bytes(text.encode(encoding))
    path = folder / "settings.toml"
    path.write_text(SETTINGS.replace("latin-1", encoding), encoding="utf-8")
    return path
