"""Tables published by each method for the same people, at one strength and under one seed, and
their errors: by class of count, by area, and in the tables that users read.

A figure is a row: level, measure, group, value. Tables of a level are pooled, each count once.
Withheld values are excluded from errors, and counted separately.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ...census.counting import People
from ...census.queries import incidence
from ...runs.directory import RunDirectory
from ...runs.files import replacing, write_text
from ..ingest import (
    Draw,
    Population,
    PublishedTable,
    RequestedTable,
    Tables,
    ancestors,
    count_people,
    dataset_folder,
    siblings,
)
from ..settings import (
    CellKeys,
    Coarsening,
    Comparison,
    DifferentialPrivacy,
    EvidenceSettings,
    Method,
    Rounding,
    Suppression,
    Swapping,
)
from . import rounding, suppression
from .rounding import perturb_counts
from .swapping import american_pairs, european_pairs, households_of, swapped_people

Figure = tuple[str, str, str, float]
"""Level, measure, group, value."""

CLASSES: Sequence[tuple[str, int, int]] = (
    ("0", 0, 0),
    ("1-2", 1, 2),
    ("3-9", 3, 9),
    ("10-99", 10, 99),
    ("100 and over", 100, np.iinfo(np.int64).max),
)
"""Classes of true counts: label, first and last."""
ALL = "all"
SHARES: Sequence[tuple[str, float, float]] = (
    ("below 10 % of its table", 0.0, 0.1),
    ("10 to 50 % of its table", 0.1, 0.5),
    ("50 % of its table and over", 0.5, np.inf),
)
"""Classes of counts by their true share of all that their table counts in the area: label, least
share, and the share that is above all."""
READ = "mean absolute error of what users read"
"""By which methods are compared: the mean, over levels, of the errors of some tables there."""
FAR, FAR_OFF = 0.05, "totals off by more than 5 %"
"""Totals of areas that are off by more than this share are counted."""


def accuracy(
    population: Population, published: Tables, read: Sequence[tuple[str, str]]
) -> Iterator[Figure]:
    """The figures of the accuracy of published tables, level by level; `read` are the keys of the
    tables that users read.
    """
    errors = dict[str, list[np.ndarray]]()
    for name, level in read:
        error = np.abs(published[name, level].value - population.truth[name, level])
        errors.setdefault(level, []).append(error[~np.isnan(error)])
    means = [float(own.mean()) for parts in errors.values() if len(own := np.concatenate(parts))]
    if means:
        yield ALL, READ, ALL, float(np.mean(means))
    levels = list(dict.fromkeys(table.places.level for table in population.tables))
    for level in levels:
        tables = [table for table in population.tables if table.places.level == level]
        yield from ((level, *own) for own in _errors(population, published, tables))
    for level, gap in _gaps(population.tables, published):
        yield level, "largest gap between areas and their sum", ALL, gap


def _errors(
    population: Population, published: Tables, tables: Sequence[RequestedTable]
) -> Iterator[tuple[str, str, float]]:
    """Measure, group and value of the errors of some tables, of one level.

    By class of the true count; signed by its share of all that its table counts in the area, zeros
    among the small shares: methods that move people towards the mean of areas, or that lift small
    counts and lower large ones, show here. Areas for which a table counts no persons have no
    shares, and neither have tables of one number. Totals of tables over areas that are off by more
    than 5 % are counted by class of the true total; a total with a withheld count is off.
    """
    of_tables, of_totals = [], []
    for table in tables:
        truth, value = population.truth[table.key], published[table.key].value
        total = truth.sum(axis=1, keepdims=True)
        share = np.where((total > 0) & (truth.shape[1] > 1), truth / np.maximum(total, 1), np.nan)
        of_tables.append([part.ravel() for part in (truth, value, share)])
        of_totals.append([total.ravel(), value.sum(axis=1)])
    truth, value, share = (np.concatenate(parts) for parts in zip(*of_tables, strict=True))
    is_shown, signed = ~np.isnan(value), value - truth
    groups = [(label, (truth >= low) & (truth <= high)) for label, low, high in CLASSES]
    for label, inside in [(ALL, np.ones(len(truth), dtype=bool)), *groups]:
        own = signed[inside & is_shown]
        yield "counts", label, float(inside.sum())
        if len(own):
            yield "mean absolute error", label, float(np.abs(own).mean())
            yield "99th percentile of error", label, float(np.quantile(np.abs(own), 0.99))
            yield "mean error", label, float(own.mean())
        if inside.any():
            yield "withheld", label, float(1 - is_shown[inside].mean())
    if (positive := truth > 0).any():
        yield "false zeros", ALL, float((value[positive & is_shown] == 0).sum() / positive.sum())
    if (zero := truth == 0).any():
        yield "false positives", ALL, float((value[zero & is_shown] > 0).sum() / zero.sum())
    for label, least, above in SHARES:
        own = signed[(share >= least) & (share < above) & is_shown]
        if len(own):
            yield "mean error", label, float(own.mean())
    truth, value = (np.concatenate(parts) for parts in zip(*of_totals, strict=True))
    is_off = ~(np.abs(value - truth) <= FAR * truth)
    for label, low, high in CLASSES[1:]:
        inside = (truth >= low) & (truth <= high)
        if inside.any():
            yield FAR_OFF, label, float(is_off[inside].mean())


def _gaps(tables: Sequence[RequestedTable], published: Tables) -> Iterator[tuple[str, float]]:
    """For each level, how far an area's count is from the sum over the areas within it at most."""
    largest: dict[str, float] = {}
    for large in tables:
        for small in tables:
            if small.name != large.name or len(small.places) <= len(large.places):
                continue
            parent = ancestors(small.places, large.places)
            if parent is None:
                continue
            total = incidence(parent, len(large.places)) @ published[small.key].value
            gap = np.abs(published[large.key].value - total)
            if not np.isnan(gap).all():
                level = large.places.level
                largest[level] = max(largest.get(level, 0.0), float(np.nanmax(gap)))
    yield from largest.items()


VERIFIED = 20_000
"""Most primary cells whose intervals are computed; of more, a sample."""


def generator_of(seed: int, *names: str) -> np.random.Generator:
    """A generator determined by a seed and some names, independent of other draws."""
    text = "\x1f".join((str(seed), *names)).encode()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:16], "big"))


def publish(
    population: Population, method: Method, strength: int, generator: np.random.Generator
) -> tuple[Tables, list[Figure]]:
    """Tables that a method publishes at one of its strengths, by position, and figures of its own;
    see each method's module.

    Differential privacy is not among them: its releases come from the product. Raises ValueError
    for parameters that cannot be met.
    """
    if isinstance(method, Suppression):
        return _without_cells(population, method.thresholds[strength], generator)
    truth: Mapping[tuple[str, str], np.ndarray] = population.truth
    if isinstance(method, Swapping):
        people = swap_people(population, method, strength, generator)
        truth = count_people(people, population.tables)
    one = _table_of(population, method, strength, generator)
    published = {table.key: one(table, truth[table.key]) for table in population.tables}
    if isinstance(method, CellKeys) and method.additive:
        return _sum_areas(population.tables, published), []
    return published, []


def _table_of(
    population: Population, method: Method, strength: int, generator: np.random.Generator
) -> Callable[[RequestedTable, np.ndarray], PublishedTable]:
    """How a method publishes the counts of one table."""
    people = population.people
    keys = generator.random(len(people))

    def cell_keys(table: RequestedTable) -> np.ndarray:
        """Fractional parts of the sums of the keys of every cell's records, which fix the random
        number of a count."""
        return np.mod(table.answer(people.area, people.cell, keys), 1.0)

    match method:
        case Rounding(how="nearest"):
            return lambda table, counts: rounding.nearest(counts, method.bases[strength])
        case Rounding(how="random"):
            return lambda table, counts: rounding.random(
                counts, method.bases[strength], cell_keys(table)
            )
        case Rounding():
            return lambda table, counts: rounding.round_controlled(
                counts, method.bases[strength], siblings(table.places)
            )
        case Coarsening(how="ranges"):
            return lambda table, counts: rounding.ranges(counts, method.thresholds[strength])
        case Coarsening():
            return lambda table, counts: rounding.minimum_size(
                counts,
                table.places.sums(people.area),
                siblings(table.places),
                method.thresholds[strength],
            )
        case CellKeys():
            noise = method.perturbation(strength).table()
            return lambda table, counts: perturb_counts(counts, cell_keys(table), noise)
    return lambda table, counts: PublishedTable.exactly(counts)


def _without_cells(
    population: Population, threshold: int, generator: np.random.Generator
) -> tuple[Tables, list[Figure]]:
    """Tables without primary and secondary cells, and how many primary cells linear programs have
    verified.
    """
    published, withheld, made = {}, dict[tuple[str, str], np.ndarray](), []
    for table in population.tables:
        counts, places = population.truth[table.key], table.places
        # From large to small areas: the totals of a level are the cells of its parents, published
        # unless withheld there.
        groups, above = siblings(places), withheld.get((table.name, places.parent_level or ""))
        masks = [
            suppression.with_secondary(
                counts[rows], threshold, None if above is None else above[places.parent[rows[0]]]
            )
            for rows in groups
        ]
        published[table.key] = suppression.without_cells(counts, groups, masks)
        withheld[table.key] = np.isnan(published[table.key].value)
        made += [(counts[rows], mask) for rows, mask in zip(groups, masks, strict=True)]
    n_primary = sum(int(((own > 0) & (own < threshold)).sum()) for own, _ in made)
    share = min(1.0, VERIFIED / max(n_primary, 1))
    verified = [suppression.verify_suppression(*own, threshold, share, generator) for own in made]
    measures = (
        "primary cells",
        "primary cells verified by linear programs",
        "primary cells with too narrow an interval",
    )
    sums = np.sum(verified, axis=0).tolist()
    return published, [(ALL, what, ALL, float(n)) for what, n in zip(measures, sums, strict=True)]


def swap_people(
    population: Population, method: Swapping, strength: int, generator: np.random.Generator
) -> People:
    """The people after the swaps of a method at one of its strengths."""
    people, rate = population.people, float(method.rates[strength])
    risk, agree = population.risk[people.cell], population.agree[people.cell]
    households = households_of(people, risk, int(risk.max(initial=-1)) + 1, [agree])
    levels = [places.entity for places in population.regions]
    if method.how == "american":
        pairs = american_pairs(households, levels, rate, generator)
    else:
        inside = people.household >= 0
        members, risk = people.household[inside], risk[inside]
        pairs = european_pairs(households, levels, members, risk, rate, method.smallest, generator)
    return swapped_people(people, pairs)


def _sum_areas(tables: Sequence[RequestedTable], published: Tables) -> Tables:
    """Replace tables of areas above the smallest by the sums of its counts.

    Levels whose entities are not unions of entities of the smallest level stay unchanged.
    """
    found = dict(published)
    for table in tables:
        own = [other for other in tables if other.name == table.name]
        smallest = max(own, key=lambda other: len(other.places))
        parent = ancestors(smallest.places, table.places)
        if smallest is table or parent is None:
            continue
        below, into = published[smallest.key], incidence(parent, len(table.places))
        sums = (into @ values for values in (below.value, below.low, below.high))
        found[table.key] = PublishedTable(*sums)
    return found


ACCURACY = "accuracy"
"""Name of the file of a release's accuracy."""


def draws_of(settings: EvidenceSettings) -> list[Draw]:
    """All releases of a comparison, method by method."""
    return [
        Draw(name, strength, number)
        for name, method in settings.methods.items()
        for strength in range(len(method.strengths))
        for number in range(1, (settings.evidence.draws if method.facts.is_random else 1) + 1)
    ]


def read_by_users(population: Population, comparison: Comparison) -> list[tuple[str, str]]:
    """Keys of the tables by whose error methods are compared: those of the settings, at the levels
    of the settings, or else at all levels but the smallest.
    """
    smallest, own = population.smallest.level, population.tables
    larger = [table.places.level for table in own if table.places.level != smallest]
    levels = comparison.read_levels or larger or [smallest]
    read = comparison.read or [table.name for table in own]
    return [table.key for table in own if table.places.level in levels and table.name in read]


def tables_of(
    settings: EvidenceSettings, population: Population, draw: Draw, dataset: Path, *names: str
) -> tuple[Tables, list[Figure]]:
    """Tables that a method publishes for people, whom the dataset has, and figures of its own;
    `names` distinguish one draw from others of the release.
    """
    method, drawn = settings.methods[draw.method], (str(draw.strength), str(draw.number))
    generator = generator_of(settings.evidence.seed, draw.method, *drawn, *names)
    if isinstance(method, DifferentialPrivacy):
        return _product_tables(settings, method, draw, dataset, population, generator), []
    return publish(population, method, draw.strength, generator)


def neighbour_tables(
    run: RunDirectory, settings: EvidenceSettings, population: Population, draw: Draw
) -> Tables:
    """Tables that a method would publish, under another seed, if some people of the input had the
    records of others; the population of each area is unchanged.
    """
    own, universe, people = settings.product_settings, settings.evidence.universe, population.people
    with TemporaryDirectory(dir=run.confidential) as folder:
        dataset = Path(folder) / "dataset"
        if isinstance(settings.methods[draw.method], DifferentialPrivacy):
            settings.CENSUS.keep(own, universe, people, dataset_folder(run), dataset)
        return tables_of(settings, population, draw, dataset, "of others")[0]


def _product_tables(
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
    answers = count_people(People.of_histogram(released), population.tables)
    return {key: PublishedTable.without_bounds(value) for key, value in answers.items()}


def write_tables(path: Path, asked: Sequence[RequestedTable], tables: Tables) -> None:
    """Keep published tables; bounds only where they are not the values."""
    arrays: dict[str, Any] = {
        f"{side} {number}": values
        for number, table in enumerate(asked)
        for side, values in vars(tables[table.key]).items()
        if values is not None and (side == "value" or values is not tables[table.key].value)
    }
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_tables(path: Path, asked: Sequence[RequestedTable]) -> Tables:
    """Read a file of `write_tables`."""
    with np.load(path) as kept:
        arrays: dict[str, np.ndarray] = dict(kept)
    found = {}
    for number, table in enumerate(asked):
        value = arrays[f"value {number}"]
        low, high = (arrays.get(f"{side} {number}", value) for side in ("low", "high"))
        found[table.key] = PublishedTable(value, low, high, arrays.get(f"total {number}"))
    return found


def write_figures(path: Path, rows: Iterable[Sequence[str | float]]) -> None:
    """Keep rows of figures: level, measure, group, value, and low and high where there are any."""
    write_text(path, json.dumps([list(row) for row in rows]) + "\n")


def read_figures(path: Path) -> list[list[str | float]]:
    """Read a file of `write_figures`."""
    return json.loads(path.read_text(encoding="utf-8"))
