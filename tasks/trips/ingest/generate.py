"""Generated commuting tables: areas of three levels, and trips between the finest of them.

Nobody's data are in them. Municipalities have log-normal sizes; most commuters stay in their own
municipality or province, the rest go anywhere, rather to large places; flows have the heavy tails
of real ones (Pareto).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

LEVELS = ("region", "province", "municipality")
PARETO_EXPONENT = 1.1
LARGEST_FLOW = 200.0
"""Exponent of the flows' tail, and where it is cut: no place holds a third of a country."""
MOST_ROUNDS = 10
STAYING, IN_PROVINCE, IN_REGION = 0.55, 0.6, 0.25
"""Share of commuters within their municipality; shares of the other pairs by how far they go."""


@dataclass(frozen=True)
class CountrySize:
    """How large a generated country is; the default is of the size of Italy."""

    regions: int = 20
    provinces: int = 110
    municipalities: int = 7_900
    pairs: int = 500_000
    commuters: int = 28_800_000


def generate_country(folder: Path, size: CountrySize = CountrySize(), *, seed: int = 0) -> Path:
    """Write `trips.parquet`, `areas.csv` and `settings.toml` into a folder; returns the settings.

    Args:
        folder: made if it does not exist.
        size: numbers of areas, of pairs with commuters (fewer if there is no room for
            them), and of commuters (exactly).
        seed: the same seed gives the same country.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    region = _spread(size.provinces, size.regions, random)
    province = _spread(size.municipalities, size.provinces, random)
    _write_areas(folder / "areas.csv", region, province)
    origin, destination = _pairs(region, province, size, random)
    counts = _flows(origin, destination, size, random)
    codes = np.array([_code(2, i) for i in range(size.municipalities)])
    table = pa.table(
        {
            "origin": pa.array(codes[origin]),
            "destination": pa.array(codes[destination]),
            "commuters": pa.array(counts),
        }
    )
    pq.write_table(table, folder / "trips.parquet", compression="zstd")
    settings = folder / "settings.toml"
    settings.write_text(
        '[input]\ntrips = "trips.parquet"\norigin = "origin"\ndestination = "destination"\n'
        'count = "commuters"\nareas = "areas.csv"\nconfidential = false\n\n'
        '[privacy]\ndataset = "generated-country"\nledger = "ledger.db"\nepsilon = "1"\n'
        'delta = "1e-8"\n',
        encoding="utf-8",
    )
    return settings


def _spread(n: int, n_above: int, random: np.random.Generator) -> np.ndarray:
    """The area above of each of n areas, ascending; everyone above has at least one."""
    weights = random.lognormal(sigma=0.5, size=n_above)
    chosen = random.choice(n_above, size=n - n_above, p=weights / weights.sum())
    return np.sort(np.concatenate([np.arange(n_above), chosen]))


def _pairs(
    region: np.ndarray, province: np.ndarray, size: CountrySize, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs of municipalities, everyone with itself among them."""
    n = size.municipalities
    weight = random.lognormal(sigma=1.2, size=n)
    itself = np.arange(n) * (n + 1)
    pairs = itself
    for _ in range(MOST_ROUNDS):
        drawn = _draw_pairs(region[province], province, weight, size.pairs, random)
        pairs = np.union1d(pairs, drawn)
        if pairs.size >= size.pairs:
            break
    others = random.permutation(np.setdiff1d(pairs, itself))[: size.pairs - n]
    kept = np.sort(np.concatenate([itself, others]))
    return kept // n, kept % n


def _draw_pairs(
    region: np.ndarray,
    province: np.ndarray,
    weight: np.ndarray,
    n_draws: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Pairs as numbers, some of them equal: near ones, regional ones, and any."""
    n = weight.size
    leaving = np.sqrt(weight)
    origin = random.choice(n, size=n_draws, p=leaving / leaving.sum())
    destination = random.choice(n, size=n_draws, p=weight / weight.sum())
    reach = random.random(n_draws)
    for area, low, high in (
        (province, 0.0, IN_PROVINCE),
        (region, IN_PROVINCE, IN_PROVINCE + IN_REGION),
    ):
        here = (reach >= low) & (reach < high)
        destination[here] = _draw_within_areas(area, area[origin[here]], weight, random)
    return origin * n + destination


def _draw_within_areas(
    area: np.ndarray, wanted: np.ndarray, weight: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """For each wanted area a municipality in it, drawn by weight; `area` ascends."""
    ends = np.cumsum(weight)
    first = np.searchsorted(area, wanted)
    last = np.searchsorted(area, wanted, side="right") - 1
    low = ends[first] - weight[first]
    drawn = low + random.random(wanted.size) * (ends[last] - low)
    return np.clip(np.searchsorted(ends, drawn), first, last)


def _flows(
    origin: np.ndarray, destination: np.ndarray, size: CountrySize, random: np.random.Generator
) -> np.ndarray:
    """Positive counts that add to the commuters exactly."""
    flow = np.minimum(random.pareto(PARETO_EXPONENT, size=origin.size), LARGEST_FLOW) + 0.2
    stays = origin == destination
    for part, share in ((stays, STAYING), (~stays, 1 - STAYING)):
        flow[part] *= share * (size.commuters - origin.size) / flow[part].sum()
    counts = 1 + np.floor(flow).astype(np.int64)
    counts[np.argmax(counts)] += size.commuters - counts.sum()
    return counts


def _write_areas(path: Path, region: np.ndarray, province: np.ndarray) -> None:
    rows = [(LEVELS[0], _code(0, i), "") for i in range(int(region[-1]) + 1)]
    rows += [(LEVELS[1], _code(1, i), _code(0, p)) for i, p in enumerate(region)]
    rows += [(LEVELS[2], _code(2, i), _code(1, p)) for i, p in enumerate(province)]
    areas = pd.DataFrame(rows, columns=["level", "area", "parent"])
    areas.to_csv(path, index=False, lineterminator="\r\n")


def _code(depth: int, number: int) -> str:
    """A code that is unique among all areas, such as M00042."""
    return f"{'RPM'[depth]}{number:0{(2, 3, 5)[depth]}d}"
