"""Spines as Parquet, one row a geounit and one a block, and once more as arrays that are mapped.

`geounits.parquet` and `blocks.parquet` are the spine. `spine.arrow` has the same as it is used, so
that all workers of a machine share its pages and a shard's task touches only its own geounits: an
uncompressed Arrow file with a record batch for each geolevel, whose metadata names the digests of
the other two. It alone is read, while it agrees with them.

`geounits`: geolevel, geocode, parent, plb_share ("p/q"), is_aian, bypassed, n_blocks; one row per
geounit, root first; the root's parent is the empty text, and the schema's metadata holds the kind
of spine under "spine". `blocks`: block_geocode and a column of geocodes for each geolevel.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from ....geography.levels import Geolevel, Spine
from ....geography.texts import texts_of
from ...runs.charged_files import digest_of
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
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
    """Write `geounits.parquet` and `blocks.parquet`, and then `spine.arrow`."""
    geounits: list[pa.Table] = []
    blocks = {"block_geocode": pa.array(spine.block_geocode, pa.string())}
    above = pa.array([""])
    for level in spine.geolevels:
        geocode = pa.array(level.geocode, pa.string())
        share_text = pa.array([str(share) for share in level.plb_shares])
        columns = {
            "geolevel": pa.repeat(level.name, len(level)),
            "geocode": geocode,
            "parent": above.take(pa.array(np.maximum(level.parent, 0))),
            "plb_share": share_text.take(pa.array(level.plb_share_code)),
            "is_aian": pa.array(level.is_aian),
            "bypassed": pa.array(level.bypassed),
            "n_blocks": pa.array(level.n_blocks, pa.int64()),
        }
        geounits.append(pa.table(columns))
        blocks[level.name] = geocode.take(pa.array(spine.ancestors(level.name)))
        above = geocode
    described = pa.concat_tables(geounits).replace_schema_metadata({"spine": spine.kind})
    write_parquet(folder / GEOUNITS, described)
    write_parquet(folder / BLOCKS, pa.table(blocks))
    _write_arrays(spine, folder)


def _files_of_spine(folder: Path) -> list[Path]:
    paths = [folder / name for name in (ARRAYS, GEOUNITS, BLOCKS)]
    for path in paths:
        if not path.exists():
            raise InputRefused(f"{path} is missing; put it back, or read the run with version 0.3.")
    return paths


@cache_unchanged(_files_of_spine, at_most=4)
def read_spine(folder: Path) -> Spine:
    """The spine stored by `write_spine`, mapped and read-only.

    Raises InputRefused where a file is missing, or `spine.arrow` is of other Parquet files.
    """
    with pa.memory_map(str(folder / ARRAYS)) as source:
        file = pa.ipc.open_file(source)
        facts = json.loads(file.schema.metadata[_KEY])
        batches = [file.get_batch(number) for number in range(file.num_record_batches)]
    if facts["of"] != _digests(folder):
        raise InputRefused(
            f"{folder / GEOUNITS} or {BLOCKS} is not the file that {ARRAYS} was made with; put it "
            "back, or start a new run."
        )
    geolevels = []
    for entry, batch in zip(facts["geolevels"], batches, strict=True):
        parent, code, is_aian, n_blocks = (
            batch[name].to_numpy() for name in ("parent", "plb_share_code", "is_aian", "n_blocks")
        )
        shares, geocode = tuple(map(Fraction, entry["shares"])), texts_of(batch["geocode"])
        geolevels.append(
            Geolevel(entry["name"], geocode, parent, shares, code, is_aian.view(bool), n_blocks)
        )
    blocks = batches[-1]
    rows = blocks["block_row"].to_numpy()
    return Spine(facts["kind"], tuple(geolevels), texts_of(blocks["block_geocode"]), rows)


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


def _digests(folder: Path) -> dict[str, str]:
    return {name: digest_of(folder / name) for name in (GEOUNITS, BLOCKS)}
