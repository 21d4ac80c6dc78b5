"""Spines as Parquet, one row a geounit and one a block, and once more as arrays that are mapped.

`geounits.parquet` and `blocks.parquet` are the spine. `spine.arrow` has the same as it is used, so
that all workers of a machine share its pages and a shard's task touches only its own geounits: an
uncompressed Arrow file with a record batch for each geolevel, whose metadata names the digests of
the other two. It is read while it agrees with them, and they are read without it.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....geography.levels import GeographyRefused, Geolevel, Spine
from ....geography.tables import is_in_order, spine_from_tables, spine_to_tables
from ....geography.texts import texts_of
from ...runs.charged_files import digest_of, is_left_out
from ...runs.directory import RunDirectory
from ...runs.errors import refuse_errors
from ...runs.files import cache_unchanged, replacing
from ...runs.stamps import write_parquet
from ..paths import spine_folder

GEOUNITS = "geounits.parquet"
BLOCKS = "blocks.parquet"
ARRAYS = "spine.arrow"

_SCHEMA = pa.schema(
    {
        "geocode": pa.string(),
        "parent": pa.int64(),
        "plb_share_code": pa.int32(),
        "is_aian": pa.uint8(),
        "bypassed": pa.uint8(),
        "n_blocks": pa.int64(),
        "block_geocode": pa.string(),
        "block_row": pa.int64(),
    }
)
"""Columns of a geolevel; the last two have values at the last geolevel alone."""

_KEY = b"spine"


def write_spine(spine: Spine, folder: Path) -> None:
    """Write `geounits.parquet` and `blocks.parquet`, and then `spine.arrow`.

    The last is left out for a spine whose order differs from the one in which the first two are
    read.
    """
    for name, table in zip((GEOUNITS, BLOCKS), spine_to_tables(spine), strict=True):
        write_parquet(folder / name, table)
    if is_in_order(spine):
        _write_arrays(spine, folder)


def _files_of_spine(folder: Path) -> list[Path]:
    """The files that the spine is read from; the arrays first where they are used."""
    has_arrays = (folder / ARRAYS).exists()
    has_arrays &= not is_left_out(folder.parent, f"{folder.name}/{ARRAYS}")
    return [folder / name for name in (*([ARRAYS] if has_arrays else []), GEOUNITS, BLOCKS)]


@cache_unchanged(_files_of_spine, at_most=4)
def read_spine(folder: Path) -> Spine:
    """Read the spine stored by `write_spine`.

    The arrays are mapped from `spine.arrow`, and read-only. Where that file is missing, as in runs
    of earlier versions, or is of other Parquet files, or a run was charged without it, the Parquet
    files are read into memory. Raises InputRefused where these do not describe one tree whose
    shares add to 1 on every path.
    """
    has_arrays = _files_of_spine(folder)[0].name == ARRAYS
    if has_arrays and (spine := _map_spine(folder)) is not None:
        return spine
    with refuse_errors(f"spine/{folder.name}: ", of=GeographyRefused):
        return spine_from_tables(pq.read_table(folder / GEOUNITS), pq.read_table(folder / BLOCKS))


def spine_of(run: RunDirectory, universe: str) -> Spine:
    """The spine of a universe of a run; see `read_spine`."""
    return read_spine(spine_folder(run, universe))


def _write_arrays(spine: Spine, folder: Path) -> None:
    facts = {
        "kind": spine.kind,
        "geolevels": [
            {"name": level.name, "shares": [str(share) for share in level.plb_shares]}
            for level in spine.geolevels
        ],
        "of": _digests(folder),
    }
    schema = _SCHEMA.with_metadata({_KEY: json.dumps(facts)})
    with replacing(folder / ARRAYS) as part, pa.ipc.new_file(str(part), schema) as writer:
        for level in spine.geolevels:
            is_last = level is spine.geolevels[-1]
            n = len(level)
            columns = [
                pa.array(level.geocode, pa.string()),
                pa.array(level.parent, pa.int64()),
                pa.array(level.plb_share_code, pa.int32()),
                pa.array(np.asarray(level.is_aian, dtype=bool).view(np.uint8)),
                pa.array(np.asarray(level.bypassed, dtype=bool).view(np.uint8)),
                pa.array(level.n_blocks, pa.int64()),
                pa.array(spine.block_geocode, pa.string()) if is_last else pa.repeat("", n),
                pa.array(spine.block_row if is_last else np.full(n, -1), pa.int64()),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _map_spine(folder: Path) -> Spine | None:
    """The spine of `spine.arrow`; None if it is of other Parquet files."""
    with pa.memory_map(str(folder / ARRAYS)) as source:
        file = pa.ipc.open_file(source)
        facts = json.loads(file.schema.metadata[_KEY])
        if facts["of"] != _digests(folder):
            return None
        batches = [file.get_batch(number) for number in range(file.num_record_batches)]
    geolevels = []
    for entry, batch in zip(facts["geolevels"], batches, strict=True):
        numbers = {name: batch[name].to_numpy() for name in _SCHEMA.names[1:6]}
        numbers |= {name: numbers[name].view(bool) for name in ("is_aian", "bypassed")}
        shares = tuple(Fraction(share) for share in entry["shares"])
        geocode = texts_of(batch["geocode"])
        geolevels.append(
            Geolevel(name=entry["name"], geocode=geocode, plb_shares=shares, **numbers)
        )
    blocks = batches[-1]
    rows = blocks["block_row"].to_numpy()
    return Spine(facts["kind"], tuple(geolevels), texts_of(blocks["block_geocode"]), rows)


def _digests(folder: Path) -> dict[str, str]:
    return {name: digest_of(folder / name) for name in (GEOUNITS, BLOCKS)}
