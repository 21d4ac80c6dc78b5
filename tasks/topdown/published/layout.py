"""The layouts of published noisy measurements: where files lie, how geounits and queries are told.

Two are known. The published one has a folder a product, universe and geolevel, partitioned by the
spine's state:

    US_Person_PL_PROD/County.parquet/DPQuery/State=044/part-00000.parquet
    US_Person_PL_PROD/County.parquet/Constraint/State=044/part-00000.parquet

The other is the folder `measurements/` of a run. Both become one record, `MeasurementFolder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq

from ....geography.rules import GEOLEVELS
from ...census.cef_2020 import CENSUS
from ...census.queries import DETAILED, TOTAL, MarginalQuery, label_parts
from ...census.schema import Schema
from ...runs.errors import InputRefused
from ...runs.files import NOT_PRIVATE, STAMP_KEY
from ..measurement.constraints import bound_names, constraint_name

UNIVERSE_FOLDERS = {"persons": "Person_PL_PROD", "units": "Unit_PL_PROD"}
"""Ending of the folder of a universe in the published layout."""

PRODUCTS = ("US", "PR")
"""What the folders of a published product begin with: the nation, and Puerto Rico."""

ROOTS = {"US": "US", "PR": "State"}
"""The geolevel at which the spines of a published product begin."""

MEASUREMENTS, CONSTRAINTS = "DPQuery", "Constraint"
PARTITION = "State"
"""Column by which the published files are partitioned."""

PUBLISHED_ATTRIBUTES = {"occupancy": "h1"}
"""Columns of the published layout that are not named as the attributes of our schemas are."""

SPECIAL_FACTORS: Mapping[str, Mapping[str, str]] = {
    "nurse_nva_0_con": {"hhgq": "gqNursingTotal", "votingage": "nonvoting"}
}
"""What the attributes' columns hold in constraints that no marginal query tells."""

TOTAL_CONSTRAINT = constraint_name(TOTAL)
"""Exact totals of geounits."""

STATE_TOTAL = "state_total_con"
"""Constraint of a run's own files whose geocode is a FIPS code, and no geounit's."""

SUMMED = "*"
"""Stands in the column of an attribute that a query sums over."""

STATE_DIGITS = {2, 3}
"""Digits of a state's geocode: FIPS, and on spines with an AIAN branch a digit before it."""

BLOCK_DIGITS = 16
"""Digits of the block geocode, with which a block's geocode ends on every spine."""


@dataclass(frozen=True)
class LevelFiles:
    """The files of one universe and geolevel, in the order in which they are read."""

    geolevel: str
    measurements: tuple[Path, ...]
    constraints: tuple[Path, ...]


@dataclass(frozen=True)
class MeasurementFolder:
    """Published noisy measurements: the files of every universe, from the root down.

    root : what the names of files in messages are relative to.
    product : "US" or "PR" in the published layout, None for a run's own folder.
    """

    root: Path
    product: str | None
    universes: Mapping[str, tuple[LevelFiles, ...]]

    def name(self, path: Path) -> str:
        """The name of a file in messages."""
        return path.relative_to(self.root).as_posix()

    def level(self, universe: str, geolevel: str) -> LevelFiles:
        """The files of a geolevel.

        Raises InputRefused if the universe or the geolevel is not there.
        """
        if universe not in self.universes:
            raise InputRefused(
                f"{self.root} has no measurements of {universe}; leave it out of run.universes, "
                "or correct input.measurements."
            )
        for found in self.universes[universe]:
            if found.geolevel == geolevel and found.constraints:
                return found
        raise InputRefused(
            f"{self.root} has no constraints of {universe} at {geolevel}, a geolevel of "
            f"budget.{universe}.geolevels; add its files, or correct the budget."
        )

    def place(self, universe: str, geolevel: str) -> str:
        """The name of the folder that has the constraints of a geolevel, in messages."""
        parts = self.level(universe, geolevel).constraints[0].relative_to(self.root).parts
        return "/".join(parts[:3])

    @property
    def has_root_of_nation(self) -> bool:
        """Whether the spines begin with the geolevel US."""
        return any(levels and levels[0].geolevel == "US" for levels in self.universes.values())

    @property
    def is_stamped(self) -> bool:
        """Whether a file says that its noise protects nobody."""
        files = [
            path
            for level in chain(*self.universes.values())
            for path in (*level.measurements[:1], *level.constraints[:1])
        ]
        return any(
            (pq.read_schema(path).metadata or {}).get(STAMP_KEY.encode()) == NOT_PRIVATE.encode()
            for path in files
        )

    @property
    def is_conventional(self) -> bool:
        """Whether the spine's geocodes are those of the tabulation: blocks have 16 digits."""
        for levels in self.universes.values():
            for level in levels:
                if level.geolevel == GEOLEVELS[-1] and level.constraints:
                    with pq.ParquetFile(level.constraints[0]) as file:
                        for batch in file.iter_batches(batch_size=1, columns=["geocode"]):
                            return len(str(batch.column(0)[0])) == BLOCK_DIGITS
        return False


def open_folder(path: str | Path, product: str | None = None) -> MeasurementFolder:
    """The measurements that lie in a folder, in either layout.

    `product` chooses between the nation and Puerto Rico where a folder has both; without it the
    nation wins. A run's directory stands for the folder `measurements/` in it.

    Raises InputRefused for a folder that is not there, that holds neither layout, or that lacks the
    geolevel at which the published spines begin.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputRefused(
            f"{root} is no folder; correct input.measurements, which names a run's measurements/ "
            "folder or one that holds US_Person_PL_PROD."
        )
    if (root / "manifest.json").exists() and (root / "measurements").is_dir():
        root = root / "measurements"
    for name in PRODUCTS if product is None else (product,):
        universes = {
            universe: _published_levels(root / f"{name}_{ending}", ROOTS[name])
            for universe, ending in UNIVERSE_FOLDERS.items()
            if (root / f"{name}_{ending}").is_dir()
        }
        if universes:
            return MeasurementFolder(root, name, universes)
    own = {
        folder.name: _levels(folder, "", "dpqueries", "constraints")
        for folder in sorted(root.iterdir())
        if folder.is_dir() and folder.name in UNIVERSE_FOLDERS
    }
    if not any(own.values()):
        raise InputRefused(
            f"{root} holds no noisy measurements; input.measurements names a run's measurements/ "
            "folder or one that holds US_Person_PL_PROD."
        )
    return MeasurementFolder(root, None, own)


def _published_levels(folder: Path, first: str) -> tuple[LevelFiles, ...]:
    there = [path.name for path in folder.glob("*.parquet") if path.is_dir()]
    if there and f"{first}.parquet" not in there:
        raise InputRefused(
            f"{folder} has no {first}.parquet: the measurements of the geolevel {first}, at which "
            "its spine begins, are missing; add them."
        )
    return _levels(folder, ".parquet", MEASUREMENTS, CONSTRAINTS)


def _levels(
    folder: Path, ending: str, measurements: str, constraints: str
) -> tuple[LevelFiles, ...]:
    """The geolevels that have a folder, named as they with an `ending`, and the folders in it."""
    places = {geolevel: folder / f"{geolevel}{ending}" for geolevel in GEOLEVELS}
    return tuple(
        LevelFiles(name, _parquet_files(at / measurements), _parquet_files(at / constraints))
        for name, at in places.items()
        if at.is_dir()
    )


def _parquet_files(folder: Path) -> tuple[Path, ...]:
    """Parquet files below a folder, partition by partition; hidden ones are left out."""
    found = (
        path
        for path in folder.rglob("*.parquet")
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts)
    )
    return tuple(sorted(found, key=lambda path: (partition_of(path) or 0, path)))


def partition_of(path: Path) -> int | None:
    """The state of the partition that a file lies in, as a number; None outside partitions.

    FIPS, FIPS with the branch before it, and 100 + FIPS inside AIAN areas all read the same.

    >>> [partition_of(Path(f"State={state}/x.parquet")) for state in ("50", "050", "150")]
    [50, 50, 150]
    """
    for part in path.parts:
        name, equals, value = part.partition("=")
        if equals and name == PARTITION and value.isdigit():
            return int(value)
    return None


def partition_name(state_geocode: str) -> str:
    """The folder of a state's partition: three digits, the first that of the branch."""
    return f"{PARTITION}={int(state_geocode):03d}"


def attribute_columns(schema: Schema) -> dict[str, str]:
    """Columns of the published layout by the attributes that they are of, in their order."""
    return {name: PUBLISHED_ATTRIBUTES.get(name, name) for name in schema.attributes}


def query_factors(schema: Schema, query: MarginalQuery) -> dict[str, str]:
    """What a query's row has in the columns of the attributes.

    The name of the attribute or coarsening that it keeps, `*` where it sums; the detailed query
    has `detailed` everywhere.
    """
    columns = attribute_columns(schema)
    if query.name == DETAILED:
        return dict.fromkeys(columns.values(), DETAILED)
    kept = {attribute: part for part, attribute, _ in label_parts(schema, query.name)}
    return {column: kept.get(name, SUMMED) for name, column in columns.items()}


def address_bounds(schema: Schema) -> tuple[str, ...]:
    """Names of the lower and of the upper bounds that a universe's addresses put on it.

    >>> address_bounds(CENSUS.schema("units"))
    ()
    """
    bounded = CENSUS.universes[schema.universe].bounded_queries
    return tuple(name for entry in bounded for name in bound_names(entry, schema))
