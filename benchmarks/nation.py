"""A generated nation in the layout of the Census Edited File: Parquet, a file a state and table.

    .venv/bin/python -m benchmarks.nation FOLDER [--fraction 1/50] [--seed 2020]

writes `persons/`, `units/` and `geography/` and a `settings.toml` that runs them. Whole it has the
331,449,281 residents and 140,498,736 housing units of the 2020 Census in 8,132,968 blocks, of which
5,900,000 can hold somebody, on the geography of `benchmarks/national_geography.py`: AIAN areas,
places, minor civil divisions and group quarters, none of which nest in tracts. A fraction has all
51 states, each that much smaller. Nobody in it exists.

Blocks, households and facilities are skewed in size. Races, Hispanic origin and ages cluster as
they do in a country: a tract has a race that is frequent there, and a household mostly shares one.
States are drawn from generators of their own, so that the same seed gives the same files.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PERSONS, HOUSING_UNITS, BLOCKS = 331_449_281, 140_498_736, 8_132_968
"""Residents, housing units and tabulation blocks of the 2020 Census."""
VACANT_SHARE = 0.097
GROUP_QUARTERS_SHARE = 0.0249
"""Share of the residents who live in group quarters."""

SIZE_SHARES = np.array([0.276, 0.345, 0.152, 0.129, 0.058, 0.023, 0.009, 0.005, 0.003])
"""Shares of households of one, two, ... persons."""
CODES_BY_TYPE = np.array([0, 102, 201, 301, 401, 501, 601, 801], dtype=np.int16)
"""A code of QGQTYP of every type of group quarters; 0 for a household."""
AGES_BY_TYPE = ((18, 70), (10, 18), (65, 102), (20, 80), (18, 24), (18, 41), (12, 76))

RACES = [chosen for size in range(1, 7) for chosen in combinations(range(6), size)]
MAIN_RACES = np.array([1, 2, 3, 4, 6])
"""CENRACE of white, black, AIAN, Asian and some other race alone: what is frequent in a tract."""
MAIN_SHARES = np.array([0.68, 0.13, 0.005, 0.065, 0.12])
RACE_SHARES = np.array([0.62, 0.124, 0.012, 0.06, 0.002, 0.08])

SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "persons"
units = "units"
geography = "geography"
[privacy]
dataset = "nation"
ledger = "ledger.db"
[run]
runner = "processes"
workers = 2
[release]
margins = false
"""


@dataclass(frozen=True)
class StateBlocks:
    """Blocks of a state that can hold somebody; arrays have shape `(n_blocks,)`.

    facilities has shape `(n_blocks, 7)`. tract numbers the tracts of the state.
    """

    identifier: np.ndarray
    tract: np.ndarray
    in_aian_area: np.ndarray
    facilities: np.ndarray


def main() -> None:
    """Write a nation; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fraction", type=Fraction, default=Fraction(1))
    parser.add_argument("--seed", type=int, default=2020)
    options = parser.parse_args()
    started = time.perf_counter()
    n_persons, n_units, n_blocks = write_nation(options.folder, options.fraction, options.seed)
    print(
        f"{n_persons:,} persons and {n_units:,} units in {n_blocks:,} blocks, in "
        f"{time.perf_counter() - started:.1f} s"
    )


def write_nation(folder: Path, fraction: Fraction, seed: int = 2020) -> tuple[int, int, int]:
    """Write the tables of a fraction of the nation; returns its persons, units and blocks."""
    from benchmarks.national_geography import NationalSizes, generate_geography

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    frame, facilities = generate_geography(NationalSizes().scaled(float(fraction)), seed=seed)
    columns = {name: frame[name].to_numpy(dtype="U").astype(np.int64) for name in frame}
    del frame
    geocode = columns["block_geocode"]
    starts = np.flatnonzero(np.r_[True, np.diff(geocode // 10**14) > 0])
    ends = np.r_[starts[1:], len(geocode)]
    shares = (ends - starts) / len(geocode)
    persons = _rounded(shares * round(PERSONS * fraction))
    units = _rounded(shares * round(HOUSING_UNITS * fraction))
    empty = _rounded(shares * max(round(BLOCKS * fraction) - len(geocode), 0))
    n_blocks = n_units = 0
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        rng = np.random.default_rng([seed, number])
        rows = slice(start, end)
        state = f"{geocode[start] // 10**14:02d}"
        of_state = {name: column[rows] for name, column in columns.items()}
        first = 30_000_000_000 + n_blocks
        table = _geography(rng, of_state, first, int(empty[number]))
        _write(folder / "geography", state, table)
        blocks = StateBlocks(
            first + np.arange(end - start),
            np.unique(geocode[rows] // 10**5, return_inverse=True)[1],
            of_state["aian"] != 9999,
            facilities[rows],
        )
        n_blocks += len(table["OIDTABBLK"])
        first_unit = 100_000_001 + n_units
        n_units += _write_state(
            folder, state, rng, blocks, int(units[number]), int(persons[number]), first_unit
        )
    return int(persons.sum()), n_units, n_blocks


def _rounded(shares: np.ndarray) -> np.ndarray:
    """Whole numbers nearest to shares that add up to the same total."""
    ends = np.rint(np.cumsum(shares)).astype(np.int64)
    return np.diff(ends, prepend=0)


def _write(folder: Path, state: str, columns: Mapping[str, np.ndarray | pa.Array]) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(dict(columns)), folder / f"{state}.parquet", compression="zstd")


def _geography(
    rng: np.random.Generator, blocks: Mapping[str, np.ndarray], first: int, n_empty: int
) -> dict[str, np.ndarray]:
    """The geography table of a state, with blocks that hold nobody beside others of their group.

    They have the last numbers that their group has left, of a thousand.
    """
    group, number = np.divmod(blocks["block_geocode"], 1000)
    last = np.searchsorted(group, group, side="right") - 1
    free = 999 - number[last]
    beside = np.sort(rng.integers(len(group), size=n_empty))
    while True:
        rank = np.arange(n_empty) - np.searchsorted(group[beside], group[beside])
        has_number = rank < free[beside]
        if has_number.all():
            break
        elsewhere = rng.integers(len(group), size=n_empty - int(has_number.sum()))
        beside = np.sort(np.r_[beside[has_number], elsewhere])
    empty = group[beside] * 1000 + 999 - rank
    geocode = np.r_[blocks["block_geocode"], empty]
    rows = np.r_[np.arange(len(blocks["block_geocode"])), beside]
    parts = {"TABBLKST": 14, "TABBLKCOU": 11, "TABTRACTCE": 5, "TABBLKGRPCE": 4, "TABBLK": 0}
    columns = {"OIDTABBLK": first + np.arange(len(geocode))}
    left = geocode
    for name, digits in parts.items():
        part, left = np.divmod(left, 10**digits)
        columns[name] = part.astype(np.int32)
    further = {"AIANNHCE": "aian", "COUSUBFP": "mcd", "PLACEFP": "place", "SDUNI": "SDUNI"}
    return columns | {ours: blocks[name][rows].astype(np.int32) for ours, name in further.items()}


def _write_state(
    folder: Path,
    state: str,
    rng: np.random.Generator,
    blocks: StateBlocks,
    n_housing: int,
    n_persons: int,
    first_unit: int,
) -> int:
    """Write units and persons of a state; returns the number of its units."""
    n_blocks = len(blocks.identifier)
    weight = rng.lognormal(sigma=1.1, size=n_blocks)
    is_home = ~blocks.facilities.any(axis=1) | (rng.random(n_blocks) < 0.7)
    weight[~is_home] = 0
    housing = is_home + rng.multinomial(n_housing - is_home.sum(), weight / weight.sum())
    kinds = np.arange(8)
    numbers = np.column_stack([housing, blocks.facilities]).ravel()
    kind = np.repeat(np.tile(kinds, n_blocks), numbers).astype(np.int8)
    block = np.repeat(np.repeat(np.arange(n_blocks), 8), numbers)
    is_vacant = (kind == 0) & (rng.random(len(kind)) < VACANT_SHARE)
    mafid = first_unit + np.arange(len(kind))
    code = CODES_BY_TYPE[kind]
    size = _sizes(rng, kind, is_vacant, n_persons)
    _write(
        folder / "units",
        state,
        {
            "RTYPE": np.where(kind == 0, 2, 4).astype(np.int8),
            "MAFID": mafid,
            "OIDTB": blocks.identifier[block],
            "BCUSTATEFP": np.full(len(kind), int(state), dtype=np.int8),
            "VACS": np.where(is_vacant, rng.integers(1, 8, len(kind)), 0).astype(np.int8),
            "QGQTYP": _blank(code, kind == 0),
            "TEN": rng.integers(1, 5, len(kind)).astype(np.int8),
        },
    )
    unit = np.repeat(np.arange(len(kind)), size)
    number = np.arange(len(unit)) - np.repeat(np.cumsum(size) - size, size)
    of_person = kind[unit]
    age = _ages(rng, unit, number, kind, size)
    race, hispanic = _races(rng, unit, number, blocks.tract[block], blocks.in_aian_area[block])
    relationship = np.where(number == 0, 20, np.where(number == 1, 21, 25)).astype(np.int8)
    relationship[of_person > 0] = np.where(of_person[of_person > 0] < 5, 37, 38)
    _write(
        folder / "persons",
        state,
        {
            "MAFID": mafid[unit],
            "QSEX": rng.integers(1, 3, len(unit), dtype=np.int8),
            "QAGE": age,
            "CENHISP": hispanic,
            "CENRACE": race,
            "RELSHIP": relationship,
            "QGQTYP": _blank(code[unit], of_person == 0),
        },
    )
    return len(kind)


def _blank(code: np.ndarray, mask: np.ndarray) -> pa.Array:
    return pa.array(code, mask=mask)


def _sizes(
    rng: np.random.Generator, kind: np.ndarray, is_vacant: np.ndarray, n_persons: int
) -> np.ndarray:
    """Persons of every unit: none in vacant ones, at least one elsewhere, `n_persons` in all."""
    facilities = np.flatnonzero(kind > 0)
    homes = np.flatnonzero((kind == 0) & ~is_vacant)
    size = np.zeros(len(kind), dtype=np.int64)
    further = max(round(n_persons * GROUP_QUARTERS_SHARE) - len(facilities), 0)
    weight = rng.lognormal(sigma=1.4, size=len(facilities))
    if len(facilities):
        size[facilities] = 1 + rng.multinomial(further, weight / weight.sum())
    ends = np.cumsum(SIZE_SHARES / SIZE_SHARES.sum())
    size[homes] = 1 + np.searchsorted(ends, rng.random(len(homes), dtype=np.float32))
    left = n_persons - int(size.sum())
    while left:
        # Some households are a person larger or smaller, until the state has its population.
        may_change = homes if left > 0 else homes[size[homes] > 1]
        changed = rng.choice(may_change, min(abs(left), len(may_change)), replace=False)
        size[changed] += np.sign(left)
        left = n_persons - int(size.sum())
    return size


def _ages(
    rng: np.random.Generator,
    unit: np.ndarray,
    number: np.ndarray,
    kind: np.ndarray,
    size: np.ndarray,
) -> np.ndarray:
    """Ages: householders' first, partners near them, children a generation below."""
    # Those who live alone are older.
    mean = np.where(size == 1, 56, 48).astype(np.float32)
    householder = np.clip(
        mean + 17 * rng.standard_normal(len(kind), dtype=np.float32), 16, 103
    ).astype(np.int16)
    age = householder[unit]
    spread = rng.standard_normal(len(unit), dtype=np.float32)
    age = np.where(number == 1, age + (4 * spread).astype(np.int16), age)
    age = np.where(number > 1, age - 29 + (7 * spread).astype(np.int16), age)
    age = np.clip(age, np.where(number == 1, 15, 0), 110)
    in_quarters = np.flatnonzero(kind[unit] > 0)
    low, high = np.array(AGES_BY_TYPE).T
    kind_of = kind[unit[in_quarters]] - 1
    age[in_quarters] = rng.integers(low[kind_of], high[kind_of])
    return age.astype(np.int8)


def _races(
    rng: np.random.Generator,
    unit: np.ndarray,
    number: np.ndarray,
    tract: np.ndarray,
    in_aian_area: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """CENRACE and CENHISP of every person; `tract` and `in_aian_area` are those of the units."""
    n_tracts = int(tract.max()) + 1
    weight = np.array([RACE_SHARES[list(c)].prod() * 0.4 ** (len(c) - 1) for c in RACES])
    ends = np.cumsum(weight / weight.sum())
    frequent = rng.choice(MAIN_RACES, n_tracts, p=MAIN_SHARES).astype(np.int8)
    share = rng.beta(3, 1.5, n_tracts).astype(np.float32)
    hispanic_share = rng.beta(0.6, 2.6, n_tracts).astype(np.float32)

    def drawn(n: int) -> np.ndarray:
        return (1 + np.searchsorted(ends[:-1], rng.random(n))).astype(np.int8)

    of_unit = np.where(in_aian_area, 3, frequent[tract]).astype(np.int8)
    differs = rng.random(len(tract), dtype=np.float32) > share[tract]
    of_unit[differs] = drawn(int(differs.sum()))
    hispanic_unit = rng.random(len(tract), dtype=np.float32) < hispanic_share[tract]
    race, hispanic = of_unit[unit], hispanic_unit[unit]
    own = (number > 0) & (rng.random(len(unit), dtype=np.float32) < 0.12)
    race[own] = drawn(int(own.sum()))
    hispanic[own] ^= rng.random(int(own.sum())) < 0.3
    return race, (1 + hispanic).astype(np.int8)


if __name__ == "__main__":
    main()
