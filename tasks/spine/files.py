"""Spines as Parquet: one row a geounit, one row a block."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geography.levels import Geolevel, Spine
from tasks.files import replacing

GEOUNITS = "geounits.parquet"
BLOCKS = "blocks.parquet"


def write_spine(spine: Spine, folder: Path) -> None:
    """Write `geounits.parquet` and then `blocks.parquet`, whose presence marks a whole spine."""
    tables = []
    for above, level in zip((None, *spine.geolevels), spine.geolevels, strict=False):
        n = len(level)
        parent = np.full(n, "", dtype=object) if above is None else above.geocode[level.parent]
        shares = pa.array([str(share) for share in level.plb_shares])
        tables.append(
            pa.table(
                {
                    "geolevel": pa.array(np.full(n, level.name, dtype=object)),
                    "geocode": pa.array(level.geocode, pa.string()),
                    "parent": pa.array(parent, pa.string()),
                    "plb_share": shares.take(pa.array(level.plb_share_code)),
                    "is_aian": pa.array(level.is_aian),
                    "bypassed": pa.array(level.bypassed),
                    "n_blocks": pa.array(level.n_blocks, pa.int64()),
                }
            )
        )
    blocks = {"block_geocode": pa.array(spine.block_geocode, pa.string())}
    for level in spine.geolevels:
        blocks[level.name] = pa.array(level.geocode[spine.ancestors(level.name)], pa.string())
    kind = {b"spine": spine.kind.encode()}
    with replacing(folder / GEOUNITS) as part:
        pq.write_table(pa.concat_tables(tables).replace_schema_metadata(kind), part)
    with replacing(folder / BLOCKS) as part:
        pq.write_table(pa.table(blocks), part)


def read_spine(folder: Path) -> Spine:
    """Read what `write_spine` wrote; kept in memory while the file does not change."""
    return _read_spine(folder, (folder / BLOCKS).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_spine(folder: Path, _modified: int) -> Spine:
    geounits = pq.read_table(folder / GEOUNITS)
    blocks = pq.read_table(folder / BLOCKS)
    names = [name for name in blocks.column_names if name != "block_geocode"]
    geolevel_of = geounits["geolevel"].to_numpy()
    levels: list[Geolevel] = []
    for name in names:
        rows = geounits.filter(pa.array(geolevel_of == name))
        codes = rows["geocode"].to_numpy(zero_copy_only=False)
        if levels:
            parents = rows["parent"].combine_chunks()
            parent = _positions(parents, levels[-1].geocode)
        else:
            parent = np.array([-1], dtype=np.int64)
        shares = rows["plb_share"].combine_chunks().dictionary_encode()
        levels.append(
            Geolevel(
                name,
                codes,
                parent,
                tuple(Fraction(share) for share in shares.dictionary.to_pylist()),
                shares.indices.to_numpy().astype(np.int32),
                rows["is_aian"].to_numpy(zero_copy_only=False),
                rows["bypassed"].to_numpy(zero_copy_only=False),
                rows["n_blocks"].to_numpy(),
            )
        )
    block_geocode = blocks["block_geocode"].to_numpy(zero_copy_only=False)
    kind = (geounits.schema.metadata or {}).get(b"spine", b"").decode()
    return Spine(kind, tuple(levels), block_geocode, np.argsort(np.argsort(block_geocode)))


def _positions(codes: pa.Array, geocode: np.ndarray) -> np.ndarray:
    """Position of each code in `geocode`."""
    return pc.index_in(codes, value_set=pa.array(geocode, pa.string())).to_numpy().astype(np.int64)
