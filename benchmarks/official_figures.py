"""Errors of the sample state beside those of the Census Bureau's own 2010 demonstration files.

Run `.venv/bin/python -m benchmarks.official_figures run FILE.csv [--preset NAME] [--seeds 1-25]
[--set KEY=VALUE]` from the repository's root, as often as there is time: rows of seeds that are
done are added to the file, and seeds that stand there are passed over. `... table FILE.csv` prints
the tables of `benchmarks/results/official_figures.md` from what is there. `... frontier` prints
what the budget implies for block groups, places and county subdivisions as the groups of the spine
vary, from public facts alone. `... options FILE.csv` adds seeds with each option of believable
blocks, and prints the table of `benchmarks/results/believable_blocks.md`. It reads
../shared/data/ri2010.

Of every seed there are sums over entities, from which figures of any number of seeds follow:

- errors of total population by level, and of blocks by their true population;
- blocks that have people where the truth has none, that have lost all, or whose people are
  minors alone;
- how many areas, by population in steps of 50, keep the share of their largest racial or ethnic
  group to within 5 percentage points: the criterion of SSS2021-02.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.public_persons import settings_of, state

NEW_JERSEY = {
    "county": (21, 1.714, 2.268, 28.6),
    "tract": (2_010, 1.950, 2.496, 17.4),
    "block group": (6_320, 16.897, 23.215, 3.4),
    "block": (169_588, 4.265, 6.890, 33.8),
}
"""Entities, mean absolute error, root mean square error and percentage exact of total population in
the 2010 demonstration file of 2022-08-25 less Summary File 1."""
NEW_JERSEY_BLOCKS = (
    *(7.19, 7.05, 6.57, 6.36, 6.28, 6.34, 6.85, 7.75, 9.51, 11.98, 16.35, 24.0, 31.0, 34.3),
)
"""Root mean square errors of its blocks, by the classes of `SIZES`."""
NEW_JERSEY_FALSE = {"ghosts": (807, 50_934), "vanished": (427, 118_654)}
"""Blocks that got people or lost all, of those that were empty or inhabited."""
PRODUCTION = "pl94_2020"
"""Beginning of the presets whose settings are near those of the file."""
SMALLEST = {
    "pl94_2020_us": {"block group": 450, "place": 200, "county subdivision": 200},
    "pl94_april_2021_us": {"block group": 550, "place": 350, "county subdivision": 350},
}
"""Populations from which the Census Bureau found the criterion met on its 2010 data."""

SIZES = np.ceil(10 ** (np.arange(15) / 4)).astype(int)
"""Population from which each class of blocks begins, the first of them 1."""
STEP, MOST = 50, 1_500
"""Width of a class of population for the criterion, and the population of the last one."""
NEAR = 250
"""Areas are near the Census Bureau's population if theirs is less than this above it."""
POINTS, OFTEN = 5, 0.95
AREAS = ["aian", "group_quarters", "mcd", "place"]
BOTH, ONLY_BLOCK_GROUPS = [*AREAS, "block_group"], ["block_group"]
"""Off-spine entities that groups of blocks follow: those of production, these within tabulation
block groups, and these alone."""
FANOUT_CUTOFFS = (0, 12, 40, 100)
OPTIONS = {
    "none": (),
    "minors accompanied": ("run.coherent=true", "run.ghosts=allow"),
    "ghosts avoided": ("run.ghosts=avoid",),
    "both": ("run.coherent=true",),
}
"""Overrides that turn on each option of believable blocks."""
KEYS = ["preset", "seed", "subject", "level", "size"]
SUMS = ["entities", "absolute", "squares", "hits"]


def figures(run: Any, settings: Any) -> pd.DataFrame:
    """Sums over the entities of a release that is compared with the truth; columns `KEYS` from
    `subject` on, and `SUMS`: hits are entities that are exact, false, or within the criterion."""
    from spineflow.tasks.answers.estimates import read_estimates
    from spineflow.tasks.census.histograms import read_histogram
    from spineflow.tasks.census.invariants import inhabitable, read_geography, read_invariants
    from spineflow.tasks.topdown.checks.accuracy.subjects import entity_levels
    from spineflow.tasks.topdown.paths import geography_file, invariants_file
    from spineflow.tasks.topdown.spine.files import spine_of

    spine, schema = spine_of(run, "persons"), settings.schema_of("persons")
    invariants = read_invariants(invariants_file(run))
    geography = read_geography(geography_file(run))
    rows = geography[inhabitable(invariants)].reset_index(drop=True)
    files = (run.root / "estimates" / "persons" / spine.names[-1]).glob("*.parquet")
    released = read_estimates(files, spine.geolevels[-1].geocode, schema.n_cells)
    truth = read_histogram(run.histogram("persons"), spine.block_geocode, n_cells=schema.n_cells)
    groups, ages = _groups(schema), np.eye(2, dtype=np.int64)[schema.levels("votingage")]
    totals = [np.asarray(own.sum(axis=1)).reshape(-1, 1) for own in (truth, released)]
    of_groups = [own @ groups for own in (truth, released)]
    found: list[dict[str, Any]] = []
    for level in entity_levels(spine, rows.iloc[spine.block_row], settings.compiled_census):
        true, own = (level.sums(part)[:, 0] for part in totals)
        sums = _sums(own - true)
        if level.name == "block":
            # Blocks that can hold nobody are on no spine, and exact.
            beyond = len(geography) - len(true)
            sums = {name: n + beyond * (name in ("entities", "hits")) for name, n in sums.items()}
            size = np.searchsorted(SIZES, true, side="right")
            for place, first in enumerate((0, *SIZES)):
                part = (own - true)[size == place]
                found.append({"subject": "size", "level": "block", "size": first, **_sums(part)})
        found.append({"subject": "errors", "level": level.name, **sums})
        counts = [level.sums(part) for part in of_groups]
        found += _criterion(level.name, *counts)
    true, own = (part[:, 0] for part in totals)
    n_empty = len(geography) - int((true > 0).sum())
    for subject, n, wrong in (
        ("ghosts", n_empty, (true == 0) & (own > 0)),
        ("vanished", int((true > 0).sum()), (true > 0) & (own == 0)),
    ):
        persons = int(np.abs(own - true)[wrong].sum())
        found.append({"subject": subject, "entities": n, "absolute": persons, "hits": wrong.sum()})
    for name, part in (("truth", truth), ("released", released)):
        young, adult = (part @ ages).T
        alone = int(((young > 0) & (adult == 0)).sum())
        found.append({"subject": "minors alone", "level": name, "hits": alone})
    return pd.DataFrame(found)


def _groups(schema: Any) -> np.ndarray:
    """(n_cells, 8) 0/1: Hispanics whatever their race, the six races alone, two races or more."""
    race = 1 + np.minimum(schema.levels("cenrace"), 6)
    return np.eye(8, dtype=np.int64)[np.where(schema.levels("hispanic") == 1, 0, race)]


def _sums(error: np.ndarray) -> dict[str, int]:
    exact = int((error == 0).sum())
    squares = int((error.astype(np.int64) ** 2).sum())
    return dict(zip(SUMS, (len(error), int(np.abs(error).sum()), squares, exact), strict=True))


def _criterion(level: str, truth: np.ndarray, released: np.ndarray) -> Iterator[dict[str, Any]]:
    """By population, the entities that keep their largest group's share."""
    population, row = truth.sum(axis=1), np.arange(len(truth))
    largest = truth.argmax(axis=1)
    share = truth[row, largest] / np.maximum(population, 1)
    own = released[row, largest] / np.maximum(released.sum(axis=1), 1)
    is_within = 100 * np.abs(own - share) <= POINTS
    size = np.minimum(population, MOST) // STEP * STEP
    for first in np.unique(size[population > 0]).tolist():
        chosen = (size == first) & (population > 0)
        sums = {"entities": int(chosen.sum()), "hits": int(is_within[chosen].sum())}
        yield {"subject": "criterion", "level": level, "size": first, **sums}


def smallest_population(rows: pd.DataFrame) -> int | None:
    """The smallest population from which on every class of areas of a level meets the criterion
    often enough; None where there is none."""
    by_size = rows.groupby("size")[["entities", "hits"]].sum().sort_index(ascending=False)
    found = None
    for size, own in by_size.iterrows():
        if own["hits"] < OFTEN * own["entities"]:
            break
        found = int(size)
    return found


def settings_with(preset: str, overrides: Sequence[str]) -> Any:
    """Settings of persons of the state, with overrides as `--set` takes them."""
    from spineflow.tasks.topdown.product import TOPDOWN

    return TOPDOWN.load(settings_of(state(), preset=preset, universes=["persons"]), overrides)


def named(preset: str, overrides: Sequence[str]) -> str:
    """Name of a preset with overrides."""
    return ", ".join([preset, *(f"`{one}`" for one in overrides)])


def add_seeds(file: Path, preset: str, seeds: Iterable[int], overrides: Sequence[str]) -> None:
    """Release the state under each seed that the file does not have, and append its sums."""
    from spineflow.tasks.topdown.checks.replicate import study

    settings = settings_with(preset, overrides)
    preset = named(preset, overrides)
    done = set()
    if file.exists():
        known = pd.read_csv(file)
        done = set(known.loc[known["preset"] == preset, "seed"])
    left = [seed for seed in seeds if seed not in done]
    with tempfile.TemporaryDirectory() as folder:
        for found in study({"": settings}, left, Path(folder), figures):
            rows = found.assign(preset=preset).reindex(columns=[*KEYS, *SUMS])
            rows.to_csv(file, mode="a", header=not file.exists(), index=False)


def print_frontier(preset: str) -> None:
    """Mean predicted deviations of the population as groups of blocks vary, as Markdown."""
    from spineflow.tasks.topdown.ingest.ingest import public_geography
    from spineflow.tasks.topdown.release.spine_summary import summary_of
    from spineflow.tasks.topdown.spine.build import spines_of

    levels = ("tract", "block group", "place", "county subdivision")
    print(f"| groups follow | fan-out cutoff | {' | '.join(levels)} |")
    print("|---|--:|" + "--:|" * len(levels))
    tables = None
    for categories in (AREAS, BOTH, ONLY_BLOCK_GROUPS):
        for cutoff in FANOUT_CUTOFFS:
            groups = f"geography.categories={json.dumps(categories)}"
            settings = settings_with(preset, [groups, f"geography.fanout_cutoff={cutoff}"])
            tables = tables or public_geography(settings)
            spine = spines_of(settings).spine("persons", tables)
            found = summary_of(settings, "persons", {"": spine}, tables).tabulated
            own = found.set_index("category")["mean"]
            figures = " | ".join(f"{own[level]:.3g}" for level in levels)
            print(f"| {', '.join(categories)} | {cutoff} | {figures} |", flush=True)


def print_tables(rows: pd.DataFrame) -> None:
    """The tables of all presets, as Markdown."""
    for preset, own in rows.groupby("preset", sort=False):
        n, is_production = own["seed"].nunique(), str(preset).startswith(PRODUCTION)
        print(f"\n## {preset}, {n} seeds\n")
        print("| level | entities | MAE | RMSE | exact | New Jersey: MAE | RMSE | exact, % |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|")
        errors = own[own["subject"] == "errors"]
        for level, of_level in errors.groupby("level", sort=False):
            is_known = is_production and level in NEW_JERSEY
            shown = " | ".join(f"{x:g}" for x in NEW_JERSEY[level][1:]) if is_known else "|  |"
            print(f"| {level} | {_figures(of_level)} | {shown} |")
        print("\n| persons in a block from | blocks | RMSE | New Jersey |\n|--:|--:|--:|--:|")
        sizes = own[own["subject"] == "size"].groupby("size")[SUMS].sum()
        for place, first in enumerate(SIZES):
            is_known = is_production and place < len(NEW_JERSEY_BLOCKS)
            official = f"{NEW_JERSEY_BLOCKS[place]:g}" if is_known else ""
            part = sizes.loc[first]
            if part["entities"]:
                rmse = math.sqrt(part["squares"] / part["entities"])
                print(f"| {first:,} | {part['entities'] / n:,.0f} | {rmse:.2f} | {official} |")
        print("\n| blocks | of | per seed | share | New Jersey |\n|---|--:|--:|--:|--:|")
        for subject, (wrong, of) in NEW_JERSEY_FALSE.items():
            part = own[own["subject"] == subject]
            share = part["hits"].sum() / part["entities"].sum()
            official = f"{wrong / of:.2%}" if is_production else ""
            print(
                f"| {subject} | {part['entities'].mean():,.0f} | {_spread(part['hits'])} | "
                f"{share:.2%} | {official} |"
            )
        alone = own[own["subject"] == "minors alone"].groupby("level")["hits"]
        truth, released = alone.get_group("truth").max(), alone.get_group("released")
        print(f"| of minors alone (truth {truth:.0f}) | | {_spread(released)} | | |")
        print("\n| level | Census Bureau | areas near | within | all above | every class from |")
        print("|---|--:|--:|--:|--:|--:|")
        criterion = own[own["subject"] == "criterion"]
        for level, official in SMALLEST[str(preset).partition(",")[0]].items():
            part = criterion[criterion["level"] == level]
            above = part[part["size"] >= official]
            near = above[above["size"] < official + NEAR]
            areas, every = near["entities"].sum() / n, smallest_population(part)
            shown = " | ".join(_share(own) for own in (near, above))
            print(f"| {level} | {official} | {areas:,.0f} | {shown} | {every} |")


def _share(rows: pd.DataFrame) -> str:
    """Share of the areas that keep their largest group's share; nothing where there are none."""
    n = rows["entities"].sum()
    return f"{rows['hits'].sum() / n:.1%}" if n else ""


def print_options(rows: pd.DataFrame, preset: str) -> None:
    """The table of the options, as Markdown: mean absolute errors by level, and false blocks."""
    by_option = {name: rows[rows["preset"] == named(preset, own)] for name, own in OPTIONS.items()}
    print(f"| mean absolute error | {' | '.join(by_option)} |\n|---|{'--:|' * len(by_option)}")
    for level in rows.loc[rows["subject"] == "errors", "level"].unique():
        shown = []
        for own in by_option.values():
            part = own[(own["subject"] == "errors") & (own["level"] == level)]
            mae = part["absolute"] / part["entities"]
            shown.append(f"{mae.mean():.4f} ± {mae.std():.2g}")
        print(f"| {level} | {' | '.join(shown)} |")
    for subject, name in (
        ("ghosts", "empty blocks with people"),
        ("vanished", "inhabited blocks without"),
        ("minors alone", "blocks of minors alone"),
    ):
        parts = (
            own[(own["subject"] == subject) & (own["level"] != "truth")]
            for own in by_option.values()
        )
        print(f"| {name} | {' | '.join(_spread(part['hits']) for part in parts)} |")


def _figures(rows: pd.DataFrame) -> str:
    """Entities, mean absolute error with its deviation between seeds, RMSE, share exact."""
    n = rows["entities"].sum()
    mae = rows["absolute"] / rows["entities"]
    spread = f" ± {mae.std():.2g}" if len(mae) > 1 else ""
    return (
        f"{rows['entities'].mean():,.0f} | {mae.mean():.3f}{spread} | "
        f"{math.sqrt(rows['squares'].sum() / n):.3f} | {rows['hits'].sum() / n:.1%}"
    )


def _spread(values: pd.Series) -> str:
    return f"{values.mean():,.1f} ({values.min():,.0f} to {values.max():,.0f})"


def main() -> None:
    """Add seeds to a file, or print its tables; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["run", "table", "frontier", "options"])
    parser.add_argument("file", type=Path, nargs="?", default=Path("official_figures.csv"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--preset", default="pl94_2020_us")
    parser.add_argument("--seeds", default="1-25", help="first and last, such as 1-25")
    asked = parser.parse_args()
    if asked.action == "table":
        print_tables(pd.read_csv(asked.file))
        return
    if asked.action == "frontier":
        print_frontier(asked.preset)
        return
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if asked.action == "options":
        for overrides in OPTIONS.values():
            add_seeds(asked.file, asked.preset, seeds, overrides)
        print_options(pd.read_csv(asked.file), asked.preset)
        return
    add_seeds(asked.file, asked.preset, seeds, asked.set)


if __name__ == "__main__":
    main()
