"""The layouts of published noisy measurements: paths of files, names of geounits and queries.

Two are known. The published one has a folder a product, universe and geolevel, partitioned by the
spine's state:

    US_Person_PL_PROD/County.parquet/DPQuery/State=044/part-00000.parquet
    US_Person_PL_PROD/County.parquet/Constraint/State=044/part-00000.parquet

The other is the folder `measurements/` of a run. Both become one record, `MeasurementFolder`.

Rows of measurement files, batch by batch, whatever widths their columns have.

Settings of the estimate flow: the measurements, their budget and spine, the estimator.

The queries, the budget and the spine are not in the measurements' files. They come from the first
source that has them: the settings file itself and the preset that it names; the file
`measured.toml` of an export, or the settings of the run whose folder is read; the production run of
the nation or of Puerto Rico, according to the geolevels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ....geography.rules import GEOLEVELS
from ...census.cef_2020 import CENSUS
from ...census.queries import DETAILED, TOTAL, MarginalQuery, Schema, label_parts
from ...runs.errors import InputRefused
from ...runs.files import NOT_PRIVATE, STAMP_KEY
from ...runs.settings import Refuse, merged_tables, table_of
from ...runs.settings_files import settings_tree
from ..measurement.constraints import bound_names, constraint_name
from ..settings import TopdownSettings

UNIVERSE_FOLDERS = {"persons": "Person_PL_PROD", "units": "Unit_PL_PROD"}
"""Ending of the folder of a universe in the published layout."""

PRODUCTS = ("US", "PR")
"""Prefixes of the folders of a published product: the nation, and Puerto Rico."""

ROOTS = {"US": "US", "PR": "State"}
"""The geolevel at which the spines of a published product begin."""

MEASUREMENTS, CONSTRAINTS = "DPQuery", "Constraint"
PARTITION, PARTITION_DIGITS = "State", 3
"""Column by which the published files are partitioned, and the digits of its values."""

PUBLISHED_ATTRIBUTES = {"occupancy": "h1"}
"""Columns of the published layout whose names differ from the attributes of our schemas."""

SPECIAL_FACTORS: Mapping[str, Mapping[str, str]] = {
    "nurse_nva_0_con": {"hhgq": "gqNursingTotal", "votingage": "nonvoting"}
}
"""Attribute columns of constraints that no marginal query describes."""

TOTAL_CONSTRAINT = constraint_name(TOTAL)
"""Exact totals of geounits."""

STATE_TOTAL = "state_total_con"
"""Constraint of a run's own files whose geocode is a FIPS code, not a geounit's."""

SUMMED = "*"
"""Value in the column of an attribute that a query sums over."""

STATE_DIGITS = {2, 3}
"""Digits of a state's geocode: FIPS, and on spines with an AIAN branch a digit before it."""

BLOCK_DIGITS = 16
"""Digits of the block geocode, with which a block's geocode ends on every spine."""


class LevelFiles(NamedTuple):
    """The files of one universe and geolevel, in the order in which they are read."""

    measurements: tuple[Path, ...]
    constraints: tuple[Path, ...]


@dataclass(frozen=True)
class MeasurementFolder:
    """Published noisy measurements: the files of every universe by geolevel, from the root down.

    root : names of files in messages are relative to it.
    product : "US" or "PR" in the published layout, None for a run's own folder.
    """

    root: Path
    product: str | None
    universes: Mapping[str, Mapping[str, LevelFiles]]

    def name(self, path: Path) -> str:
        """The name of a file in messages."""
        return path.relative_to(self.root).as_posix()

    def level(self, universe: str, geolevel: str) -> LevelFiles:
        """The files of a geolevel.

        Raises InputRefused if the universe or the geolevel is missing.
        """
        if universe not in self.universes:
            raise InputRefused(
                f"{self.root} has no measurements of {universe}; leave it out of run.universes, "
                "or correct input.measurements."
            )
        found = self.universes[universe].get(geolevel)
        if found is None or not found.constraints:
            raise InputRefused(
                f"{self.root} has no constraints of {universe} at {geolevel}, a geolevel of "
                f"budget.{universe}.geolevels; add its files, or correct the budget."
            )
        return found

    def place(self, universe: str, geolevel: str) -> str:
        """The name of the folder that has the constraints of a geolevel, in messages."""
        parts = self.level(universe, geolevel).constraints[0].relative_to(self.root).parts
        return "/".join(parts[:3])

    @property
    def has_root_of_nation(self) -> bool:
        """Whether the spines begin with the geolevel US."""
        return any("US" in levels for levels in self.universes.values())

    @property
    def is_stamped(self) -> bool:
        """Whether a file is marked as not private."""
        files = [
            path
            for levels in self.universes.values()
            for level in levels.values()
            for path in (*level.measurements[:1], *level.constraints[:1])
        ]
        return any(
            (pq.read_schema(path).metadata or {}).get(STAMP_KEY.encode()) == NOT_PRIVATE.encode()
            for path in files
        )

    @property
    def is_conventional(self) -> bool:
        """Whether the spine has the geocodes of the tabulation: blocks have 16 digits."""
        for levels in self.universes.values():
            for path in levels.get(GEOLEVELS[-1], LevelFiles((), ())).constraints[:1]:
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches(batch_size=1, columns=["geocode"]):
                        return len(str(batch.column(0)[0])) == BLOCK_DIGITS
        return False


def open_folder(path: str | Path, product: str | None = None) -> MeasurementFolder:
    """The measurements in a folder, in either layout.

    `product` chooses between the nation and Puerto Rico where a folder has both; without it the
    nation wins. A run's directory means its folder `measurements/`.

    Raises InputRefused for a folder that does not exist, that has neither layout, or that lacks the
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


def _published_levels(folder: Path, first: str) -> dict[str, LevelFiles]:
    there = [path.name for path in folder.glob("*.parquet") if path.is_dir()]
    if there and f"{first}.parquet" not in there:
        raise InputRefused(
            f"{folder} has no {first}.parquet: the measurements of the geolevel {first}, at which "
            "its spine begins, are missing; add them."
        )
    return _levels(folder, ".parquet", MEASUREMENTS, CONSTRAINTS)


def _levels(
    folder: Path, ending: str, measurements: str, constraints: str
) -> dict[str, LevelFiles]:
    """The geolevels that have a folder, named after them with an `ending`, and the folders in
    it."""
    places = {geolevel: folder / f"{geolevel}{ending}" for geolevel in GEOLEVELS}
    return {
        name: LevelFiles(_parquet_files(at / measurements), _parquet_files(at / constraints))
        for name, at in places.items()
        if at.is_dir()
    }


def _parquet_files(folder: Path) -> tuple[Path, ...]:
    """Parquet files below a folder, partition by partition; hidden ones are left out."""
    found = (
        path
        for path in folder.rglob("*.parquet")
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts)
    )
    return tuple(sorted(found, key=lambda path: (partition_of(path) or 0, path)))


def partition_of(path: Path) -> int | None:
    """The state number of a file's partition; None outside partitions.

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
    """The folder of a state's partition: three digits, the first for the branch."""
    return f"{PARTITION}={state_geocode:0>{PARTITION_DIGITS}}"


def attribute_columns(schema: Schema) -> dict[str, str]:
    """Columns of the published layout by their attributes, in their order."""
    return {name: PUBLISHED_ATTRIBUTES.get(name, name) for name in schema.attributes}


def query_factors(schema: Schema, query: MarginalQuery) -> dict[str, str]:
    """Attribute columns of a query's row.

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


ROWS_PER_BATCH, ROWS_OF_TEXT_PER_BATCH = 1 << 12, 1 << 17
"""Rows in memory at a time; a row with values of the detailed query of persons takes 16 KiB."""

_INTEGERS = pa.list_(pa.int64())
TYPES: Mapping[str, pa.DataType] = {
    "geocode": pa.string(),
    "query_name": pa.string(),
    "value": _INTEGERS,
    "query_shape": _INTEGERS,
    "variance": pa.float64(),
}
"""Types that columns are read as; texts are dictionaries."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of one file.

    file : its name in messages.
    table : the requested columns as far as the file has them. Texts are dictionaries of strings,
        lists have 64-bit integers, variances are doubles.
    """

    file: str
    table: pa.Table

    def texts(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The distinct values of a text column, and the code of each row."""
        column = self.table[name].combine_chunks()
        values = np.asarray(column.dictionary.to_pylist(), dtype=object)
        return values, column.indices.to_numpy(zero_copy_only=False)

    def part(self, chosen: np.ndarray) -> Rows:
        """Some of the rows, by their positions."""
        return replace(self, table=self.table.take(chosen))

    def numbers(
        self, name: str, width: int, geocode: np.ndarray, what: str, subject: str
    ) -> np.ndarray:
        """The numbers `(m, width)` of the lists of a column; refuses lists of another length as
        `refuse_where` does."""
        column = self.table[name].combine_chunks()
        lengths = pc.list_value_length(column).to_numpy()
        self.refuse_where(lengths != width, geocode, what, subject)
        return column.flatten().to_numpy().reshape(-1, width)

    def refuse_where(
        self, is_wrong: np.ndarray, geocode: np.ndarray, what: str, subject: str = ""
    ) -> None:
        """Raise InputRefused about the first geounit that is wrong, `(m,)` each; `subject`, such as
        "the constraint total_con of ", precedes it and `what` follows it."""
        refuse_first(self.file, is_wrong, geocode, what, subject)

    def refuse_repeated(
        self, place: np.ndarray, is_seen: np.ndarray, geocode: np.ndarray, what: str
    ) -> None:
        """Refuse geounits at `place` (m,) among `geocode` that are repeated or were seen before."""
        self.refuse_where(is_seen, geocode[place], what)
        ordered = np.sort(place)
        self.refuse_where(ordered[1:] == ordered[:-1], geocode[ordered[1:]], what)


def refuse_first(
    place: str, is_wrong: np.ndarray, geocode: np.ndarray, what: str, subject: str = ""
) -> None:
    """Raise InputRefused about the first geounit that is wrong, naming the place of its rows; see
    `Rows.refuse_where`."""
    if is_wrong.any():
        geounit = geocode[int(np.argmax(is_wrong))]
        raise InputRefused(f"{place}: {subject}geounit {geounit} {what}.")


def read_rows(
    folder: MeasurementFolder, path: Path, needed: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[Rows]:
    """The rows of a file in batches, with the columns `needed` and existing `optional` ones.

    Raises InputRefused, naming the file, for one that is not Parquet, lacks a column or a value, or
    whose column is of another kind.
    """
    name = folder.name(path)
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid):
        raise InputRefused(
            f"{name} is no Parquet file, or a damaged one; fetch it again."
        ) from None
    with file:
        there = set(file.schema_arrow.names)
        missing = [column for column in needed if column not in there]
        if missing:
            raise InputRefused(f"{name} has no column '{missing[0]}'; fetch the file again.")
        columns = [*needed, *(column for column in optional if column in there)]
        size = ROWS_PER_BATCH if "value" in needed else ROWS_OF_TEXT_PER_BATCH
        batches = file.iter_batches(batch_size=size, columns=columns)
        while True:
            try:
                batch = next(batches, None)
            except (OSError, pa.ArrowInvalid):
                raise InputRefused(f"{name} is damaged; fetch it again.") from None
            if batch is None:
                return
            yield Rows(name, _normal(name, pa.Table.from_batches([batch]), needed))


def _normal(name: str, table: pa.Table, needed: Sequence[str]) -> pa.Table:
    """The table with the types that `Rows` promises, without optional columns that lack values."""
    arrays: dict[str, pa.ChunkedArray] = {}
    for column in table.column_names:
        array = table[column]
        if array.null_count:
            if column not in needed:
                continue
            raise InputRefused(f"{name} has rows without {column}; fetch the file again.")
        try:
            if pa.types.is_dictionary(array.type):
                array = array.cast(array.type.value_type)
            array = array.cast(TYPES[column])
            is_text = pa.types.is_string(array.type)
            arrays[column] = array.dictionary_encode() if is_text else array
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise InputRefused(
                f"{name}: the column '{column}' is of the type {array.type}, which cannot be read "
                "as that column; fetch the file again."
            ) from None
    return pa.table(arrays)


MEASURED_FILE = "measured.toml"
"""Settings of the measurements in an export."""

NATION, PUERTO_RICO = "pl94_2020_us", "pl94_2020_pr"

_DECLARED = ("census", "geography", "budget", "workload")
_RELEASED = ("tables", "pl94171", "margins")


class EstimateSettings(TopdownSettings):
    """All settings of an estimate run."""

    PRODUCT: ClassVar[str] = "estimate"

    @classmethod
    def completed(cls, own: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        """The file's table, completed from the measurements.

        Added are their budget and spine, the universes present, whether they are not private,
        and a name for the run. Raises InputRefused for a folder that holds something else.
        """
        path = table_of(own, "input").get("measurements")
        if not isinstance(path, str) or not (folder / path).is_dir():
            # Missing or misspelt settings are reported when the settings have been validated.
            unknown = {
                "preset": NATION,
                "input": {"confidential": False},
                "privacy": {"dataset": "published"},
            }
            return merged_tables(unknown, own) | {"measured": {}}
        root = (folder / path).resolve()
        # A preset of Puerto Rico reads its measurements where a folder has both.
        is_pr = str(own.get("preset")).endswith("_pr")
        found = open_folder(root, "PR" if is_pr else None)
        dataset = re.sub(r"[^A-Za-z0-9._-]+", "-", found.root.name).lstrip("._-")
        declared = {} if "preset" in own else settings_beside(found)
        base: dict[str, Any] = {
            "input": {"confidential": False},
            "privacy": {"dataset": dataset or "published"},
            "run": {"universes": list(found.universes)},
        }
        if "preset" not in own and not declared:
            base["preset"] = NATION if found.has_root_of_nation else PUERTO_RICO
        if not declared and found.is_conventional:
            base["geography"] = {"spine": "conventional"}
        merged = merged_tables(merged_tables(base, cls.without_replaced(declared, own)), own)
        if "universes" not in table_of(own, "run"):
            there = [name for name in merged["run"]["universes"] if name in found.universes]
            merged["run"]["universes"] = there
        return merged | {"measured": {"not_private": found.is_stamped}}

    def refuse_ineffective(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse settings of noise and of confidential records, which this flow does not use."""
        if self.input.confidential:
            refuse("input.confidential is true, but nothing that is read is confidential")
        if self.privacy.infinite or self.privacy.seed is not None:
            refuse("privacy.infinite and privacy.seed are of noise, and no noise is drawn")


def settings_beside(folder: MeasurementFolder) -> dict[str, Any]:
    """Settings recorded next to measurements, as tables.

    An export has it in `measured.toml`, a run's own folder in the run's `settings.toml`. Raises
    InputRefused for a file that cannot be read or names no dataset.
    """
    file = folder.root / MEASURED_FILE
    if folder.product is None and not file.exists():
        file = folder.root.parent / "settings.toml"
    if not file.is_file():
        return {}
    tree = settings_tree(file)
    if not isinstance(table_of(tree, "privacy").get("dataset"), str):
        raise InputRefused(
            f"{file} names no dataset ([privacy] dataset) whose measurements these are; restore "
            "it, or take it away and say in the settings how they were made."
        )
    return measured_settings(tree)


def measured_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that describe its measurements and their use."""
    kept: dict[str, Any] = {name: tree[name] for name in _DECLARED if name in tree}
    run, release = tree.get("run", {}), tree.get("release", {})
    kept["run"] = {name: run[name] for name in ("universes", "estimator") if name in run}
    kept["release"] = {name: release[name] for name in _RELEASED if name in release}
    kept["privacy"] = {"dataset": tree["privacy"]["dataset"]}
    return kept
