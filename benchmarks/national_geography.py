"""A generated national geography with the sizes and the nesting breaks of the real one.

Blocks lie along one line: states, counties, tracts, block groups and blocks in geocode order.
Places, minor civil divisions, school districts and AIAN areas are intervals of a second order in
which the blocks of a tract are partly shuffled, so that a boundary that crosses a tract cuts
through several of its block groups, as real boundaries do. All names are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from spineflow.geography.hierarchy import digits, ranks_within
from spineflow.geography.rules import AianRange

STATE_FIPS = np.setdiff1d(np.arange(1, 57), [3, 7, 14, 43, 52])
"""The 50 states and the District of Columbia."""

STRONG_MCD_STATES = ("09", "23", "25", "26", "27", "33", "34", "36", "42", "44", "50", "55")

AIAN_RANGES = (
    AianRange(low="0001", high="4989", area="reservation", on_spine=True),
    AianRange(low="5000", high="7999", area="statistical area on the spine", on_spine=True),
    AianRange(low="8000", high="9998", area="statistical area off the spine", on_spine=False),
)


@dataclass(frozen=True, kw_only=True)
class NationalSizes:
    """Numbers of geographic entities; the defaults are those of the nation."""

    blocks: int = 5_900_000
    tracts: int = 84_000
    counties: int = 3_143
    places: int = 30_000
    mcds: int = 36_000
    aian_areas: int = 700
    school_districts: int = 13_000
    states: int = 51
    shuffle: float = 0.25
    """How far boundaries stray from the order of the blocks in a tract, 0 for not at all."""
    facility_rate: float = 0.03
    """Share of blocks with group quarters."""
    county_spread: float = 1.5
    """Standard deviation of the logarithm of a county's weight."""

    def scaled(self, scale: float) -> NationalSizes:
        """Sizes of a fraction of the nation; every state is kept, and states of fewer counties
        are as unequal."""
        counts = {
            name: max(int(round(getattr(self, name) * scale)), 1)
            for name in ("blocks", "tracts", "places", "mcds", "aian_areas", "school_districts")
        }
        counties = max(int(round(self.counties * scale)), self.states)
        variance = np.expm1(self.county_spread**2) * counties / self.counties
        return NationalSizes(
            **counts,
            county_spread=float(np.sqrt(np.log1p(variance))),
            counties=counties,
            states=self.states,
            shuffle=self.shuffle,
            facility_rate=self.facility_rate,
        )


def generate_geography(sizes: NationalSizes, *, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A geography frame and the group-quarters facilities of its blocks.

    Returns:
        The frame (block_geocode, aian, mcd, place, SDUNI; text columns) sorted by
        block_geocode, and an (n_blocks, 7) int8 array of facilities by type.
    """
    rng = np.random.default_rng(seed)
    further = rng.integers(sizes.states, size=sizes.counties - sizes.states)
    state_of_county = np.sort(np.r_[np.arange(sizes.states), further])
    county_of_tract = np.repeat(
        np.arange(sizes.counties),
        _sizes(rng, sizes.counties, sizes.tracts, spread=sizes.county_spread),
    )
    n_blocks = _sizes(rng, sizes.tracts, sizes.blocks, spread=0.6)
    tract = np.repeat(np.arange(sizes.tracts), n_blocks)
    county = county_of_tract[tract]
    state = state_of_county[county]
    rank = ranks_within(tract)
    curve = _boundary_order(rng, tract, rank, n_blocks, sizes.shuffle)

    county_number = 2 * (county - np.searchsorted(state_of_county, state)) + 1
    tract_number = 100 * (tract - np.searchsorted(county_of_tract, county) + 1)
    n_groups = np.minimum(rng.integers(1, 6, size=sizes.tracts), n_blocks)
    group = rank * n_groups[tract] // n_blocks[tract] + 1
    first_in_group = -(-(group - 1) * n_blocks[tract] // n_groups[tract])
    geocode = ((STATE_FIPS[state] * 1000 + county_number) * 10**6 + tract_number) * 10 + group
    geocode = geocode * 10_000 + group * 1000 + rank - first_in_group

    county_starts = np.r_[0, np.flatnonzero(np.diff(county)) + 1]
    mcd = _intervals(rng, curve, sizes.mcds, starts=county_starts[1:])
    mcd_code = 5 * (mcd - np.minimum.reduceat(mcd, county_starts)[county] + 1)
    state_starts = np.flatnonzero(np.diff(state)) + 1
    place = _intervals(rng, curve, 2 * sizes.places, starts=state_starts)
    place_code = np.where(place % 2 == 1, 100 + place % 99_000, 99_999)
    # Enclaves: runs of blocks that a place surrounds without holding them.
    place_code[rng.random(sizes.blocks // 4 + 1).repeat(4)[: sizes.blocks] < 0.02] = 99_999
    aian = _scattered(rng, curve, sizes.aian_areas, sizes.blocks // 80)
    aian_code = np.where(aian >= 0, 1 + 13 * aian % 9_997, 9_999)
    district = _intervals(rng, curve, sizes.school_districts, starts=state_starts)

    facilities = np.zeros((sizes.blocks, 7), dtype=np.int8)
    holds = np.flatnonzero(rng.random(sizes.blocks) < sizes.facility_rate)
    kind = rng.choice(7, size=len(holds), p=[0.08, 0.03, 0.25, 0.04, 0.18, 0.02, 0.4])
    facilities[holds, kind] = 1 + rng.poisson(0.5, size=len(holds))
    second = holds[rng.random(len(holds)) < 0.1]
    facilities[second, rng.integers(7, size=len(second))] += 1

    frame = pd.DataFrame(
        {
            "block_geocode": _text(geocode, 16),
            "aian": _text(aian_code, 4),
            "mcd": _text(mcd_code, 5),
            "place": _text(place_code, 5),
            "SDUNI": _text(district % 99_000, 5),
        }
    )
    return frame, facilities


def _sizes(rng: np.random.Generator, n: int, total: int, *, spread: float) -> np.ndarray:
    """(n,) positive integers with a heavy tail that add to the total."""
    weight = rng.lognormal(sigma=spread, size=n)
    return 1 + rng.multinomial(total - n, weight / weight.sum())


def _boundary_order(
    rng: np.random.Generator,
    tract: np.ndarray,
    rank: np.ndarray,
    n_blocks: np.ndarray,
    shuffle: float,
) -> np.ndarray:
    """(n,) position of each block on the line that boundaries cut."""
    within = (rank + 0.5) / n_blocks[tract] + shuffle * rng.standard_normal(len(tract))
    position = np.empty(len(tract), dtype=np.int64)
    position[np.lexsort([within, tract])] = np.arange(len(tract))
    return position


def _intervals(
    rng: np.random.Generator, curve: np.ndarray, n: int, *, starts: np.ndarray
) -> np.ndarray:
    """(n_blocks,) number of the interval of the line each block lies in.

    Cuts are random; further intervals start where a county or state does.
    """
    n_cuts = max(n - len(starts) - 1, 0)
    cuts = rng.choice(len(curve) - 1, size=min(n_cuts, len(curve) - 1), replace=False) + 1
    is_start = np.zeros(len(curve), dtype=np.int64)
    is_start[cuts] = 1
    is_start[starts] = 1
    return np.cumsum(is_start)[curve]


def _scattered(rng: np.random.Generator, curve: np.ndarray, n: int, n_covered: int) -> np.ndarray:
    """(n_blocks,) number of the scattered interval each block lies in, -1 outside all."""
    length = np.minimum(_sizes(rng, n, max(n_covered, 2 * n), spread=1.5), len(curve) // 2)
    start = np.sort(rng.integers(len(curve), size=n))
    end = np.minimum(np.r_[start[1:], len(curve)], start + length)
    covered = np.repeat(np.arange(n), end - start)
    number = np.full(len(curve), -1, dtype=np.int64)
    number[start[covered] + ranks_within(covered)] = covered
    return number[curve]


def _text(values: np.ndarray, width: int) -> pd.api.extensions.ExtensionArray:
    """Zero-padded numbers as a text column, without one Python object per row."""
    return pd.array(digits(values, width), dtype="str")
