"""Estimates and covariances of areas off the spine: districts, places, any lists of blocks.

For an area E write z_u for the part of its answers in geounit u, and x_u for the whole of u. Given
x_u and the measurements below u, z_u has the mean R_u x_u and a covariance N_u that depend on the
subtree alone. With the children's covariances V_c, their sum S and the gains K = S^-1 of
`spine_posterior`,

    R_u = (sum of R_c V_c) S^-1,
    N_u = sum of N_c + sum over all children of (R_c - R_u) V_c (R_c - R_u)',

where R_c is the answers themselves for a block of the area and 0 for another. At the root, whose
covariance from everything is C, the area's answers have the covariance N + R C R'. Only geounits
that the area cuts are visited. Intersections of two areas are handled by concatenating the answers
of both, a block's R_c having rows for each of them that it belongs to.

Named areas: lists of blocks, polygons, geounits, and pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike
from scipy import sparse

from ....geography.levels import Spine
from ...runs.errors import InputRefused
from ...tables.area_lists import read_texts
from ...tables.columns import cut_into_runs
from ...tables.formats import TextFormat
from ..estimation.spine_estimates import GroupedEstimates, Step
from .answers import AnswerCovariances, ProductAnswers, SpinePosterior

MOST_NUMBERS = 1 << 19
"""Areas are taken together while their matrices have no more entries (4 MiB): smaller ones stay
nearer to the processor."""


@dataclass(frozen=True, eq=False)
class BlockAreas:
    """Areas, or tuples of areas, as lists of blocks; they may overlap.

    block, area : (p,) a block's row on the spine and a number from 0 to n_areas - 1, ascending.
    inside : (p, slots) whether the block is in each area of the tuple; ones for single areas.
    """

    n_areas: int
    block: np.ndarray
    area: np.ndarray
    inside: np.ndarray

    @classmethod
    def of_pairs(cls, n_areas: int, block: np.ndarray, area: np.ndarray) -> BlockAreas:
        """Areas from pairs of a block and an area, in any order; rows of blocks below 0 are left
        out."""
        kept = np.flatnonzero((block >= 0) & (area >= 0))
        n_blocks = int(block[kept].max(initial=0)) + 1
        pairs = np.unique(area[kept].astype(np.int64) * n_blocks + block[kept])
        return cls(n_areas, pairs % n_blocks, pairs // n_blocks, np.ones((pairs.size, 1)))

    def part(self, start: int, stop: int) -> BlockAreas:
        """The areas from `start` to `stop`, numbered from 0."""
        first, last = np.searchsorted(self.area, [start, stop])
        kept = slice(first, last)
        return BlockAreas(
            stop - start, self.block[kept], self.area[kept] - start, self.inside[kept]
        )

    def tuples(self, chosen: Sequence[np.ndarray]) -> BlockAreas:
        """Tuples of these areas: `chosen` has, for each slot, the area of every tuple (t,)."""
        of_areas = self.incidence(int(self.block.max(initial=-1)) + 1)
        found = [sparse.coo_array(of_areas[areas]) for areas in chosen]
        keys = np.concatenate([np.stack(one.coords) for one in found], axis=1).astype(np.int64)
        pairs, place = np.unique(keys, axis=1, return_inverse=True)
        inside = np.zeros((pairs.shape[1], len(chosen)))
        slot = np.repeat(np.arange(len(chosen)), [one.nnz for one in found])
        inside[place.reshape(-1), slot] = 1.0
        return BlockAreas(len(chosen[0]), pairs[1], pairs[0], inside)

    def incidence(self, n_blocks: int, dtype: DTypeLike = np.float64) -> sparse.csr_array:
        """(n_areas, n_blocks) 0/1 matrix of the blocks of each single area."""
        ones = np.ones(self.block.size, dtype=dtype)
        return sparse.csr_array((ones, (self.area, self.block)), (self.n_areas, n_blocks))

    def sums(self, of_blocks: np.ndarray) -> np.ndarray:
        """(n_areas, ...) sums over the blocks of each single area, from (n_blocks, ...)."""
        n_blocks = len(of_blocks)
        flat = self.incidence(n_blocks, of_blocks.dtype) @ of_blocks.reshape(n_blocks, -1)
        return np.asarray(flat).reshape(self.n_areas, *of_blocks.shape[1:])


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of areas in the geounits of one geolevel.

    unit, area : (p,). regression : (p, S or 1, z, n) the matrices R on all core cells, z the
    answers' core sets in every slot. variance, diffuse : (p, S, z, z) the matrices N, and the part
    that is left undetermined.
    """

    unit: np.ndarray
    area: np.ndarray
    regression: np.ndarray
    variance: np.ndarray
    diffuse: np.ndarray


def area_covariances(
    posterior: SpinePosterior, answers: ProductAnswers, areas: BlockAreas
) -> AnswerCovariances:
    """Covariances of the answers of areas, or of tuples of areas.

    Cost: one small matrix for each pair of an area and a touched geounit.
    """
    z, n_cells = answers.core.shape
    z *= areas.inside.shape[1]
    shape = (areas.n_areas, len(answers.places), z, z)
    variance, diffuse = np.zeros(shape), np.zeros(shape)
    size = len(answers.places) * z * n_cells
    costs = np.bincount(areas.area, minlength=areas.n_areas) * size
    for first, last in cut_into_runs(costs, MOST_NUMBERS):
        start, stop = np.searchsorted(areas.area, [first, last])
        inside, area = areas.inside[start:stop], areas.area[start:stop]
        regression = (inside[:, :, None, None] * answers.core).reshape(-1, 1, z, n_cells)
        nothing = np.zeros((len(area), *shape[1:]))
        parts = _Parts(areas.block[start:stop], area, regression, nothing, nothing)
        for step in reversed(posterior.steps):
            parts = _sum_into_wholes(step, answers.places, parts, areas.n_areas)
        at_root = _root_covariances(answers.places, parts, posterior.root)
        _add(variance, parts.area, parts.variance + at_root[0])
        _add(diffuse, parts.area, parts.diffuse + at_root[1])
    return AnswerCovariances(answers, variance, diffuse)


def area_estimates(
    blocks: GroupedEstimates, answers: ProductAnswers, areas: BlockAreas
) -> np.ndarray:
    """Best linear unbiased estimates (n_areas, a) of single areas, the sums of the blocks'."""
    found = np.zeros((areas.n_areas, len(answers.core), blocks.algebra.n_coordinates))
    incidence = areas.incidence(len(blocks.type_is_possible)).tocsc()
    for group in blocks.groups:
        part = incidence[:, group.rows].tocsr()
        sums = part @ group.estimates.mean.reshape(group.rows.size, -1)
        sums = np.asarray(sums).reshape(areas.n_areas, *group.estimates.mean.shape[1:])
        found += answers.on_core(sums, group.cells)
    return answers.estimates(found)


def _add(
    into: np.ndarray,
    place: np.ndarray,
    matrices: np.ndarray,
    cells: np.ndarray | slice = slice(None),
) -> None:
    """Add matrices (p, S, z, m) to the rows `place` (p,), in their columns `cells` (m,)."""
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    at = place[order[starts]]
    sums = into[at]
    sums[..., cells] += np.add.reduceat(matrices[order], starts, axis=0)
    into[at] = sums


def _sum_into_wholes(step: Step, places: list[int], parts: _Parts, n_areas: int) -> _Parts:
    """Parts of the areas in the wholes of a step, from those in its parts."""
    pairs, place = np.unique(step.whole[parts.unit] * n_areas + parts.area, return_inverse=True)
    place, unit, area = place.reshape(-1), pairs // n_areas, pairs % n_areas
    z, n_cells = parts.regression.shape[2:]
    shape = (pairs.size, len(places), z)
    # Of V and of D: the sums of R_c V_c, and those of N_c and R_c V_c R_c'.
    cross = np.zeros((2, *shape, n_cells))
    own = np.zeros((2, *shape, z))
    for into, matrices in zip(own, (parts.variance, parts.diffuse), strict=True):
        if matrices.any():
            _add(into, place, matrices)
    for chosen, group, rows in step.parts.meeting(parts.unit):
        r = parts.regression[chosen][..., group.cells]
        for one, v in enumerate((group.estimates.variance, group.estimates.diffuse)):
            if v.any():
                product = r @ v[rows[:, None], places]
                _add(cross[one], place[chosen], product, group.cells)
                _add(own[one], place[chosen], product @ r.swapaxes(-1, -2))
    regression = np.zeros((*shape, n_cells))
    gains = {id(group): gain for group, gain in zip(step.sums.groups, step.gains, strict=True)}
    for chosen, group, rows in step.sums.meeting(unit):
        gain, at = gains[id(group)], (rows[:, None], places)
        seen = cross[:, chosen][..., group.cells]
        r = seen[0] @ gain[0][at] + seen[1] @ gain[1][at]
        _add(regression, chosen, r, group.cells)
        for one, s in enumerate((group.estimates.variance, group.estimates.diffuse)):
            both = seen[one] @ r.swapaxes(-1, -2)
            own[one, chosen] += r @ s[at] @ r.swapaxes(-1, -2) - both - both.swapaxes(-1, -2)
    return _Parts(unit, area, regression, *own)


def _root_covariances(
    places: list[int], parts: _Parts, root: GroupedEstimates
) -> tuple[np.ndarray, np.ndarray]:
    """R C R' and R D R' at the root."""
    found = np.zeros_like(parts.variance), np.zeros_like(parts.diffuse)
    for chosen, group, rows in root.meeting(parts.unit):
        regression = parts.regression[chosen][..., group.cells]
        matrices = group.estimates.variance, group.estimates.diffuse
        for into, covariance in zip(found, matrices, strict=True):
            if not covariance.any():
                continue
            product = regression @ covariance[rows][:, places]
            into[chosen] = product @ regression.swapaxes(-1, -2)
    return found


BLOCK = "block"
"""Column of the finest areas' codes; in the census of 2020, also the word for these areas."""
PUBLISHED = {"BLOCKID": BLOCK, "DISTRICT": "area"}
"""Columns of published block assignment files, and their names here."""
NO_DISTRICT = r"Z+"
"""Value for a block of no district."""
GROUP_DIGIT = 11
"""Place of the block group in a geocode of 16 digits, after state, county and tract."""
MOST_SHOWN = 3
"""Unknown codes that a message quotes: they come from a list of the user, not from the input."""


@dataclass(frozen=True, eq=False)
class KnownBlocks:
    """The finest areas of a run: `geocode` of all in its geography, uninhabitable ones included,
    `short`, other codes of each where these are unique, and the word for one in messages.
    """

    geocode: pd.Index
    short: pd.Index | None = None
    word: str = BLOCK

    @classmethod
    def of(cls, geography: pd.DataFrame, last: str | None = None) -> KnownBlocks:
        """From a geography frame; `last` is the last geolevel of a declared census, by which
        messages call the areas, and its column with their codes."""
        geocode, word = pd.Index(geography["block_geocode"].astype(object)), last or BLOCK
        if last is None:
            # Blocks are published with 15 digits, without that of the block group, which equals
            # the first of the block's own.
            published = geocode.str.slice(0, GROUP_DIGIT) + geocode.str.slice(GROUP_DIGIT + 1)
            is_known = geocode.str.fullmatch(r"\d{16}").all() and published.is_unique
            return cls(geocode, published if is_known else None, word)
        if last not in geography or geography[last].duplicated().any():
            return cls(geocode, None, word)
        return cls(geocode, pd.Index(geography[last].astype(object)), word)

    def geocodes(self, codes: pd.Series) -> np.ndarray:
        """Geocodes (n,) of blocks by either of their codes.

        Raises InputRefused for codes that no block has, with their number and a few of them.
        """
        number = self.geocode.get_indexer(codes)
        if self.short is not None:
            number = np.where(number < 0, self.short.get_indexer(codes), number)
        unknown = codes[number < 0].drop_duplicates().tolist()
        if unknown:
            several = f"{len(unknown):,} codes that are" if len(unknown) > 1 else "a code that is"
            some = ", ".join(repr(code) for code in unknown[:MOST_SHOWN])
            further = ", and so on" if len(unknown) > MOST_SHOWN else ""
            which = "as published," if self.word == BLOCK else "of the last geolevel"
            also = "" if self.short is None else f", or {which} as {self.short[0]!r}"
            raise InputRefused(
                f"The areas list {several} of no {self.word} of the run: {some}{further}; write "
                f"all parts of a code, as in {self.geocode[0]!r}{also}."
            )
        return self.geocode.to_numpy(dtype=object)[number]


@dataclass(frozen=True, eq=False)
class NamedAreas:
    """Names (n_areas,) and the blocks of each."""

    names: np.ndarray
    blocks: BlockAreas

    @classmethod
    def listed(
        cls, areas: pd.DataFrame, known: KnownBlocks, block_geocode: np.ndarray
    ) -> NamedAreas:
        """Areas from a table with the columns `area` and `block`. Known blocks that are not on the
        spine are uninhabitable, and are left out.

        Raises InputRefused for unknown blocks, and if no block is on the spine.
        """
        names, number = np.unique(areas["area"].to_numpy(dtype=object), return_inverse=True)
        block = pd.Index(block_geocode).get_indexer(known.geocodes(areas["block"]))
        if not (block >= 0).any():
            raise InputRefused(f"No {known.word} that the areas list can hold anybody.")
        return cls(names, BlockAreas.of_pairs(len(names), block, number.reshape(-1)))

    @classmethod
    def of_blocks(cls, names: np.ndarray, number: np.ndarray) -> NamedAreas:
        """Areas by name, and the area (n_blocks,) of each of the spine's blocks."""
        return cls(names, BlockAreas.of_pairs(len(names), np.arange(len(number)), number))

    @classmethod
    def of_geolevel(cls, spine: Spine, geolevel: str) -> NamedAreas:
        """The geounits of a geolevel."""
        return cls.of_blocks(spine.geolevel(geolevel).geocode, spine.ancestors(geolevel))

    def numbers(self, names: pd.Series, file: Path) -> np.ndarray:
        """Numbers of areas by name; InputRefused for an unknown one, which `file` names."""
        number = pd.Index(self.names).get_indexer(names)
        if (number < 0).any():
            unknown = names[number < 0].iloc[0]
            raise InputRefused(
                f"{file} names {unknown!r}, which is not one of the areas or geounits that are "
                "compared; write names as the list of areas, or the geolevel, has them."
            )
        return number


def read_areas(
    path: Path, last: str | None = None, written: TextFormat | None = None
) -> pd.DataFrame:
    """Areas as lists of blocks, from CSV or Parquet with the columns `area` and `block`, or from a
    published block assignment file (BLOCKID and DISTRICT, in which ZZ is no district).

    In a declared census, whose last geolevel is `last`, its column may also have that name.
    `written` is the declared text format.
    """
    table = read_texts(path, ("area", BLOCK, last or BLOCK, *PUBLISHED), written)
    return _area_columns(table, str(path), last)


def listed_areas(areas: Any, points: pd.DataFrame | None, last: str | None = None) -> pd.DataFrame:
    """Areas as lists of blocks, from a frame with the columns `area` and `block`, or from polygons.

    Polygons are a frame of geopandas or GeoJSON as a mapping, each with its name as `area`; a block
    is in the polygons that contain or touch its point. `points` has `block`, `latitude` and
    `longitude` in degrees, where the run knows them.
    """
    if isinstance(areas, pd.DataFrame) and "geometry" not in areas.columns:
        return _area_columns(areas, "The frame", last)
    if isinstance(areas, pd.DataFrame | Mapping):
        return _within(areas, points)
    raise InputRefused(
        "Areas are a data frame with the columns 'area' and 'block', or polygons: a frame of "
        "geopandas, or GeoJSON."
    )


def _within(polygons: Any, points: pd.DataFrame | None) -> pd.DataFrame:
    if points is None:
        raise InputRefused(
            "Polygons need a point of every block: declare latitude and longitude of the last "
            "geolevel under census.geography.entities, or give a frame of areas and blocks."
        )
    if find_spec("geopandas") is None:
        raise InputRefused("Polygons need geopandas: install spineflow[maps].")
    import geopandas

    if not isinstance(polygons, pd.DataFrame):
        try:
            polygons = geopandas.GeoDataFrame.from_features(polygons, crs="EPSG:4326")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputRefused(
                "The areas are no GeoJSON; give a mapping with 'features', each with a 'geometry'."
            ) from None
    if "area" not in polygons:
        raise InputRefused("The polygons have no names: give them a column 'area'.")
    if polygons.crs is not None:
        polygons = polygons.to_crs("EPSG:4326")
    at = geopandas.points_from_xy(points["longitude"], points["latitude"])
    blocks = geopandas.GeoDataFrame(points[["block"]], geometry=at, crs=polygons.crs)
    found = blocks.sjoin(polygons[["area", "geometry"]], predicate="intersects")
    missing = sorted(set(polygons["area"].astype(str)) - set(found["area"].astype(str)))
    if missing:
        raise InputRefused(
            f"There is no block's point in the polygons of {len(missing):,} areas, such as "
            f"{missing[0]!r}; they must be in degrees, or say in which coordinates they are."
        )
    return found[["area", "block"]].astype(str).drop_duplicates().reset_index(drop=True)


def points_of(geography: pd.DataFrame, latitude: str, longitude: str) -> pd.DataFrame:
    """Blocks of a geography frame with the points given by two of its columns, where given."""
    numbers = {
        name: pd.to_numeric(geography[column], errors="coerce")
        for name, column in (("latitude", latitude), ("longitude", longitude))
    }
    return pd.DataFrame({"block": geography["block_geocode"], **numbers}).dropna()


def read_pairs(path: Path, written: TextFormat | None = None) -> pd.DataFrame:
    """Pairs to compare, from CSV or Parquet with the columns `first` and `second`."""
    meaning = "each row names two areas or geounits that are compared, in 'first' and 'second'"
    pair = "first", "second"
    return _columns(read_texts(path, pair, written), str(path), pair, meaning)


def _area_columns(table: pd.DataFrame, where: str, last: str | None) -> pd.DataFrame:
    """The columns `area` and `block`, the latter also under the name of the last geolevel."""
    word = last or BLOCK
    if word == BLOCK and {*PUBLISHED} <= {*table.columns}:
        table = table.rename(columns=PUBLISHED)
        table = table[~table["area"].astype(str).str.fullmatch(NO_DISTRICT)]
    if BLOCK not in table and word in table:
        table = table.rename(columns={word: BLOCK})
    where_it_stands = f"'{BLOCK}', or 'DISTRICT' and 'BLOCKID' as published"
    if last is not None:
        where_it_stands = f"'{word}' or '{BLOCK}'"
    meaning = (
        "an area is the rows with its name in 'area', each with the code of a "
        f"{word} in {where_it_stands}"
    )
    return _columns(table, where, ("area", BLOCK if BLOCK in table else word), meaning)


def _columns(table: pd.DataFrame, where: str, columns: Iterable[str], meaning: str) -> pd.DataFrame:
    """Some columns of a table as texts, without rows that are repeated."""
    names = list(columns)
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise InputRefused(f"{where} has no column {missing[0]!r}; {meaning}.")
    texts = table[names].astype(str).apply(lambda column: column.str.normalize("NFC"))
    return texts.drop_duplicates().reset_index(drop=True)
