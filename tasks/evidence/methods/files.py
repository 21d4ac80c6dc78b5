"""Published tables as files, and what makes them: a method's own code, or the product's release."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ...census.partitions import People
from ...runs.directory import RunDirectory
from ...runs.files import replacing, write_text
from ...runs.handles import stopwatch
from ..ingest.population import population_of
from ..paths import Draw, dataset_folder, figures_file, tables_file
from ..settings import Comparison, DifferentialPrivacy, EvidenceSettings
from ..workload.population import Population, counted
from ..workload.tables import AskedTable, PublishedTable, Tables
from .accuracy import ALL, Figure, accuracy
from .publish import generator_of, publish

ACCURACY = "accuracy"
"""What the file of a release's accuracy is called."""


def draws_of(settings: EvidenceSettings) -> list[Draw]:
    """All releases of a comparison, method by method."""
    return [
        Draw(name, strength, number)
        for name, method in settings.methods.items()
        for strength in range(len(method.strengths))
        for number in range(1, (settings.evidence.draws if method.is_random else 1) + 1)
    ]


def publish_draw(run: RunDirectory, settings: EvidenceSettings, draw: Draw) -> Path:
    """Make the tables of a release, and keep them and how accurate they are."""
    population = population_of(run, settings)
    with stopwatch() as seconds:
        tables, figures = _tables(settings, population, draw, dataset_folder(run))
        took = seconds()
    figures += accuracy(population, tables, read_by_users(population, settings.evidence))
    figures.append((ALL, "seconds", ALL, took))
    write_figures(figures_file(run, draw, ACCURACY), figures)
    path = tables_file(run, draw)
    write_tables(path, population.tables, tables)
    return path


def read_by_users(population: Population, comparison: Comparison) -> list[tuple[str, str]]:
    """Keys of the tables by whose error methods are compared: those of the settings, at the levels
    of the settings, or else at all levels but the smallest.
    """
    smallest = max((table.places for table in population.tables), key=len).level
    levels = comparison.read_levels or tuple(
        table.places.level for table in population.tables if table.places.level != smallest
    )
    return [
        table.key
        for table in population.tables
        if table.places.level in (levels or (smallest,))
        and (not comparison.read or table.name in comparison.read)
    ]


def _tables(
    settings: EvidenceSettings, population: Population, draw: Draw, dataset: Path, *names: str
) -> tuple[Tables, list[Figure]]:
    """What a method publishes of people, whom the dataset has, and figures of its own; `names` tell
    one draw from others of the release.
    """
    method, drawn = settings.methods[draw.method], (str(draw.strength), str(draw.number))
    generator = generator_of(settings.evidence.seed, draw.method, *drawn, *names)
    if isinstance(method, DifferentialPrivacy):
        return _released(settings, method, draw, dataset, population, generator), []
    return publish(population, method, draw.strength, generator)


def tables_of_others(
    run: RunDirectory, settings: EvidenceSettings, population: Population, draw: Draw
) -> Tables:
    """What a method would publish, under another seed, if some people of the input had the records
    of others; as many live in each area.
    """
    own, universe, people = settings.product_settings, settings.evidence.universe, population.people
    with TemporaryDirectory(dir=run.confidential) as folder:
        dataset = Path(folder) / "dataset"
        if isinstance(settings.methods[draw.method], DifferentialPrivacy):
            settings.CENSUS.keep(own, universe, people, dataset_folder(run), dataset)
        return _tables(settings, population, draw, dataset, "of others")[0]


def _released(
    settings: EvidenceSettings,
    method: DifferentialPrivacy,
    draw: Draw,
    dataset: Path,
    population: Population,
    generator: np.random.Generator,
) -> Tables:
    """The tables of the product's own release of a dataset, about whose counts nothing is certain:
    noise has no largest value.
    """
    census, universe = settings.CENSUS, settings.evidence.universe
    rho = method.rho[draw.strength] if method.rho else None
    own = census.spending(settings.product_settings, universe, rho, method.estimator)
    seed = int(generator.integers(1 << 31))
    with TemporaryDirectory(dir=dataset.parent) as folder:
        released = census.release(own, universe, dataset, seed, Path(folder))
    answers = counted(People.of_histogram(released), population.tables)
    return {key: PublishedTable.without_bounds(value) for key, value in answers.items()}


def write_tables(path: Path, asked: Sequence[AskedTable], tables: Tables) -> None:
    """Keep published tables; bounds only where they are not the values."""
    arrays: dict[str, Any] = {}
    for number, table in enumerate(asked):
        own = tables[table.key]
        arrays[f"value {number}"] = own.value
        if own.low is not own.value:
            arrays[f"low {number}"], arrays[f"high {number}"] = own.low, own.high
        if own.total is not None:
            arrays[f"total {number}"] = own.total
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_tables(path: Path, asked: Sequence[AskedTable]) -> Tables:
    """Read what `write_tables` has kept."""
    found = {}
    with np.load(path) as kept:
        for number, table in enumerate(asked):
            value = kept[f"value {number}"]
            low, high = (
                kept[name] if (name := f"{side} {number}") in kept else value
                for side in ("low", "high")
            )
            total = kept[name] if (name := f"total {number}") in kept else None
            found[table.key] = PublishedTable(value, low, high, total)
    return found


def write_figures(path: Path, rows: Iterable[Sequence[str | float]]) -> None:
    """Keep rows of figures: level, measure, group, value, and low and high where there are any."""
    write_text(path, json.dumps([list(row) for row in rows]) + "\n")


def read_figures(path: Path) -> list[list[str | float]]:
    """Read what `write_figures` has kept."""
    return json.loads(path.read_text(encoding="utf-8"))
