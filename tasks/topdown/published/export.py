"""Writing a run's noisy measurements in the published layout.

The state totals, which the published files lack, are written next to the folders of the universes
(`state_totals.csv`), as is `measured.toml`, which records the queries, the budget and the spine.
Variances are exact again from the losses, which the column `plb` has as fractions; the variances
themselves are rounded to 32 bits, as they were published.

Geocodes have the widths by which readers of the published files cut them:

    State 3, County 9, Tract 12, Block_Group 14, Block 30

A spine's own codes are as long as its data need. Exported codes also begin with the parent's, and
go on with a running digit of a county, also where it is not split, three of a tract and two of a
block group, all from 1 on, and the 16 digits of the block. Where the digits of a tract do not
reach, as in Los Angeles, letters go on from 9. The codes of the conventional spine, which are the
codes of the tabulation, stay as they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tomli_w
from pyarrow.dataset import ParquetFileFormat, partitioning, write_dataset

from ....geography.levels import Spine
from ...census.invariants import read_state_totals
from ...census.queries import Schema, marginal_query
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import NOT_PRIVATE, STAMP_FILE, STAMP_KEY
from ...runs.settings_files import settings_tree
from ..measurement.constraints import constraint_name
from ..paths import spine_folder, state_totals_file
from ..settings import TopdownSettings
from ..spine.files import shards_of, spine_of
from .geounits import query_of
from .layout import (
    CONSTRAINTS,
    MEASURED_FILE,
    MEASUREMENTS,
    PARTITION,
    PARTITION_DIGITS,
    PRODUCTS,
    SPECIAL_FACTORS,
    STATE_TOTAL,
    SUMMED,
    UNIVERSE_FOLDERS,
    address_bounds,
    attribute_columns,
    measured_settings,
    open_folder,
    partition_name,
    query_factors,
)

FILES = "part-0000{i}.parquet"
TOTALS_CSV = "state_totals.csv"

ROWS_PER_BATCH = 1 << 12


STATE_WIDTH = 3
"""Width of a state's code on a spine with an AIAN branch; other spines keep their codes."""
COUNTY = "10"
"""Separates a state's code from the FIPS of its county."""
COUNTY_DIGITS = 3
RUNNING = {"County": 1, "Tract": 3, "Block_Group": 2}
"""Characters of the running numbers."""
CHARACTERS = 36
"""Digits and letters of running numbers that need them."""


def export_measurements(run: RunDirectory, settings: TopdownSettings, folder: Path) -> list[Path]:
    """Write all noisy measurements and constraints of a run; returns the universes' folders.

    Raises InputRefused for a run that has not measured yet, or on demand, has no noise, or is of a
    declared census, and for a folder that is not empty.
    """
    refuse_export(run, settings, folder)
    own = open_folder(run.root / "measurements")
    product = PRODUCTS[0 if own.has_root_of_nation else 1]
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    try:
        for universe in settings.run.universes:
            target = folder / f"{product}_{UNIVERSE_FOLDERS[universe]}"
            made.append(target)
            _write_universe(run, settings, universe, target)
        _write_totals(run, folder)
        tree = settings_tree(run.settings)
        (folder / MEASURED_FILE).write_text(
            tomli_w.dumps(measured_settings(tree)), encoding="utf-8"
        )
        if not settings.is_private:
            (folder / STAMP_FILE).write_text(f"{settings.stamp}.\n", encoding="utf-8")
    except BaseException:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    return made


def refuse_export(run: RunDirectory, settings: TopdownSettings, folder: Path) -> None:
    """Raise InputRefused for a run or folder that `export_measurements` does not support."""
    if not settings.compiled_census.follows_block_rules:
        raise InputRefused(
            f"{run.root} is a run of a declared census; the published layout exists only for "
            "the census of 2020."
        )
    if settings.privacy.infinite:
        raise InputRefused(
            f"{run.root} drew no noise, so that its measurements are the records' own counts; "
            "export a run with noise."
        )
    for universe in settings.run.universes:
        if settings.is_on_demand(universe):
            raise InputRefused(
                f"{run.root} measured {universe} on demand; its measurements are incomplete, and "
                "readers would take them for complete ones."
            )
        shards = spine_folder(run, universe) / "shards.parquet"
        missing = not shards.exists() or not all(
            run.dpqueries(universe, shard.geolevel, shard.name).exists()
            for shard in shards_of(run, universe)
        )
        if missing:
            raise InputRefused(
                f"{run.root} has not measured all of {universe} yet; finish it with 'spineflow "
                "resume'."
            )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputRefused(f"{folder} is there already; choose another folder, or remove it.")


def _write_universe(
    run: RunDirectory, settings: TopdownSettings, universe: str, target: Path
) -> None:
    schema = settings.schema_of(universe)
    spine = spine_of(run, universe)
    own = open_folder(run.root / "measurements")
    states = spine.geolevel("State").geocode.tolist() if "State" in spine.names else []
    digits = len(states[0]) if states else 0
    stamp = None if settings.is_private else NOT_PRIVATE
    codes = published_geocodes(spine)
    # The layout has no constraints that follow from the released counts of another universe.
    unpublished = {STATE_TOTAL}
    for agreement in settings.compiled_census.universes[universe].agreements:
        unpublished |= {constraint_name(agreement.name, side) for side in ("_lb", "_ub")}
    for geolevel, level in own.universes[universe].items():
        at = target / f"{geolevel}.parquet"
        own_codes = pa.array(spine.geolevel(geolevel).geocode, pa.string())
        published = pa.array(codes[geolevel].tolist(), pa.binary()).cast(pa.string())
        state_digits = 0 if geolevel == "US" else digits
        by_state = pa.schema([(PARTITION, pa.string())]) if state_digits else None
        for kind, files in ((MEASUREMENTS, level.measurements), (CONSTRAINTS, level.constraints)):
            layout = _Layout(schema, kind == CONSTRAINTS, state_digits, stamp)
            write_dataset(
                layout.batches(files, unpublished, own_codes, published),
                at / kind,
                schema=layout.rows,
                format="parquet",
                file_options=ParquetFileFormat().make_write_options(compression="zstd"),
                partitioning=by_state and partitioning(by_state, flavor="hive"),
                basename_template=FILES,
                use_threads=False,
            )
            # Readers list a state's folder even where all its geounits were bypassed.
            for state in states if state_digits else ():
                (at / kind / partition_name(state)).mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class _Layout:
    """Columns of a universe's published files; attribute columns by query name.

    state_digits : digits of a geocode for its state, by which the files are partitioned; 0 without
        partitions.
    stamp : stored in the files' metadata, if there is any.
    """

    universe: Schema
    is_constraint: bool
    state_digits: int
    stamp: str | None

    @property
    def rows(self) -> pa.Schema:
        """Schema of the rows, with their partition."""
        fields = [
            ("geocode", pa.string()),
            ("query_name", pa.string()),
            *((name, pa.string()) for name in attribute_columns(self.universe).values()),
            ("query_shape", pa.list_(pa.int32())),
            ("value", pa.list_(pa.int64())),
            ("variance", pa.float32()),
            ("plb", pa.string()),
        ]
        fields += [("sign", pa.string())] * self.is_constraint
        fields += [(PARTITION, pa.string())] * bool(self.state_digits)
        metadata = None if self.stamp is None else {STAMP_KEY: self.stamp}
        return pa.schema([pa.field(*entry) for entry in fields], metadata)

    def of_name(self, name: str) -> dict[str, object]:
        """The columns that follow from the name of a query or constraint."""
        if not self.is_constraint:
            query = marginal_query(self.universe, query_of(name))
            return {**query_factors(self.universe, query), "query_shape": list(query.shape)}
        columns = list(attribute_columns(self.universe).values())
        factors = dict.fromkeys(columns, SUMMED) | dict(SPECIAL_FACTORS.get(name, {}))
        shape = [1] * len(columns)
        bounded = name.partition("_total")[0]
        if name in address_bounds(self.universe) and bounded in columns:
            place = columns.index(bounded)
            factors[bounded], shape[place] = bounded, self.universe.shape[place]
        return {**factors, "query_shape": shape, "variance": 0.0, "plb": "0"}

    def batches(
        self, files: Sequence[Path], unpublished: Set[str], codes: pa.Array, published: pa.Array
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a run's files in these columns, some at a time, without those of some names;
        `published` are the geocodes of the geounits with these `codes`."""
        columns = ["geocode", "query_name", "value"]
        columns += ["sign"] if self.is_constraint else ["variance", "plb"]
        left_out = pa.array(sorted(unpublished))
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                    own = batch.filter(pc.invert(pc.is_in(batch["query_name"], left_out)))
                    if own.num_rows:
                        place = pc.index_in(own["geocode"], value_set=codes)
                        yield from self._published(own, published.take(place)).to_batches()

    def _published(self, batch: pa.RecordBatch, geocode: pa.Array) -> pa.Table:
        """The rows of a batch with the columns of the layout and published geocodes."""
        names = batch["query_name"].dictionary_encode()
        of_names = pa.Table.from_pylist(list(map(self.of_name, names.dictionary.to_pylist())))
        state = pc.utf8_slice_codeunits(geocode, 0, self.state_digits)
        columns = {name: batch[name] for name in batch.schema.names}
        columns |= {name: of_names[name].take(names.indices) for name in of_names.column_names}
        columns |= {"geocode": geocode, PARTITION: pc.utf8_lpad(state, PARTITION_DIGITS, "0")}
        rows = self.rows
        return pa.table({name: columns[name] for name in rows.names}).cast(rows)


def _write_totals(run: RunDirectory, folder: Path) -> None:
    """The exact totals of the states, if the run declares any."""
    totals = read_state_totals(state_totals_file(run))
    if totals:
        lines = ["geocode,value", *(f"{state},{totals[state]}" for state in sorted(totals)), ""]
        (folder / TOTALS_CSV).write_text("\n".join(lines), encoding="utf-8")


def published_geocodes(spine: Spine) -> dict[str, np.ndarray]:
    """(n,) published geocode of every geounit of each geolevel, as bytes, in the spine's order.

    Raises InputRefused for a geounit with more children than its width has numbers.
    """
    codes: dict[str, np.ndarray] = {}
    above = np.empty(0, dtype="S0")
    has_branch = "State" in spine.names and len(spine.geolevel("State").geocode[0]) == STATE_WIDTH
    for level in spine.geolevels:
        own = np.asarray(level.geocode).astype("S")
        if not has_branch or level.name in ("US", "State"):
            codes[level.name] = own
        elif level.name == "Block":
            blocks = np.asarray(spine.block_geocode).astype("S")
            codes[level.name] = np.char.add(above[level.parent], blocks)
        else:
            start = above[level.parent]
            if level.name == "County":
                end = STATE_WIDTH + len(COUNTY) + COUNTY_DIGITS
                start = own.astype(f"S{end}")
            number = running_numbers(start, RUNNING[level.name], level.name)
            codes[level.name] = np.char.add(start, number)
        above = codes[level.name]
    return codes


def running_numbers(start: np.ndarray, width: int, geolevel: str) -> np.ndarray:
    """(n,) running number of each geounit among adjacent ones whose codes begin alike.

    Raises InputRefused where the width has too few numbers.
    """
    is_first = np.r_[True, start[1:] != start[:-1]]
    firsts = np.flatnonzero(is_first)
    number = np.arange(len(start)) - firsts[np.cumsum(is_first) - 1] + 1
    if len(number) and number.max() >= CHARACTERS**width:
        place = int(np.argmax(number))
        raise InputRefused(
            f"geounit {start[place].decode()} has more geounits of {geolevel} than the published "
            f"layout can number with {width} characters; export a spine that splits it less."
        )
    base = CHARACTERS if len(number) and number.max() >= 10**width else 10
    texts = [pad_number(int(n), width, base) for n in range(number.max(initial=0) + 1)]
    return np.array(texts, dtype="S")[number]


def pad_number(number: int, width: int, base: int) -> str:
    """A running number with so many characters, which sort as the numbers do.

    >>> pad_number(7, 3, 10), pad_number(1296, 3, CHARACTERS)
    ('007', '100')
    """
    return np.base_repr(number, base).zfill(width)
