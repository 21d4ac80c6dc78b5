"""The demonstrations: a generated county or country, its settings, and where its run goes."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_country import generate_country

COUNTRY = Path(__file__).parent / "demos" / "country.toml"
"""Settings of the generated country, whose census they declare."""

SETTINGS = """\
# A generated county; nobody lives there, so counts may be shown.
preset = "pl94_2020_us"

[input]
persons = "input/persons.parquet"
units = "input/units.parquet"
geography = "input/grfc.txt"
confidential = false

[privacy]
dataset = "demo-county"
ledger = "ledger.db"

[geography]
spine = "optimized"

[run]
universes = ["persons", "units"]
runner = "threads"
workers = 2
"""

DEMO_CAP = "10"
"""Cap of what may be spent on the generated county: some three runs of the demonstration."""


def write_demo(folder: Path, *, seed: int = 2020) -> Path:
    """Write the county's tables and settings below `folder`, and return the settings file.

    What is there already is kept, so that a second demonstration continues the first.
    """
    settings = folder / "settings.toml"
    if not settings.exists():
        (folder / "input").mkdir(parents=True, exist_ok=True)
        generate_county(folder / "input", seed=seed)
        settings.write_text(SETTINGS, encoding="utf-8")
    return settings


def write_demo_country(folder: Path, *, seed: int = 2020) -> Path:
    """Write the tables and settings of a country abroad below `folder`, as `write_demo` does."""
    settings = folder / "settings.toml"
    if not settings.exists():
        (folder / "input").mkdir(parents=True, exist_ok=True)
        generate_country(folder / "input", seed=seed)
        settings.write_text(COUNTRY.read_text(encoding="utf-8"), encoding="utf-8")
    return settings
