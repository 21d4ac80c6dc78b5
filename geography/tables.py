"""A spine as two Arrow tables, and back.

`geounits`: geolevel, geocode, parent, plb_share ("p/q"), is_aian, bypassed, n_blocks; one row per
geounit, root first; the schema's metadata holds the kind of spine under "spine". `blocks`:
block_geocode (16 digits) and one column per geolevel with the spine's geocode.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .levels import GeographyRefused, Geolevel, Spine, encode_shares, shares_add_to_one

GEOUNIT_COLUMNS = ("geolevel", "geocode", "parent", "plb_share", "is_aian", "bypassed", "n_blocks")


def spine_to_tables(spine: Spine) -> tuple[pa.Table, pa.Table]:
    """The tables `geounits` and `blocks` of a spine; the root's parent is the empty text."""
    parts: list[pa.Table] = []
    blocks = {"block_geocode": pa.array(spine.block_geocode, pa.string())}
    above = pa.array([""])
    for level in spine.geolevels:
        n = len(level)
        geocode = pa.array(level.geocode, pa.string())
        share_text = pa.array([str(share) for share in level.plb_shares])
        columns = (
            pa.repeat(level.name, n),
            geocode,
            above.take(pa.array(level.parent if parts else np.zeros(1, dtype=np.int64))),
            share_text.take(pa.array(level.plb_share_code)),
            pa.array(level.is_aian),
            pa.array(level.bypassed),
            pa.array(level.n_blocks, pa.int64()),
        )
        parts.append(pa.table(dict(zip(GEOUNIT_COLUMNS, columns, strict=True))))
        blocks[level.name] = geocode.take(pa.array(spine.ancestors(level.name)))
        above = geocode
    geounits = pa.concat_tables(parts).replace_schema_metadata({"spine": spine.kind})
    return geounits, pa.table(blocks)


def spine_from_tables(geounits: pa.Table, blocks: pa.Table) -> Spine:
    """Read a spine back from its tables.

    Geolevels must appear root first, rows within one in any order.

    Raises:
        GeographyRefused: the tables do not describe one tree whose last geounits are the blocks,
            and whose shares add to exactly 1 on every path.
    """
    geolevel = _text(geounits["geolevel"]).dictionary_encode()
    geolevels: list[Geolevel] = []
    above = pa.array([""])
    for number, name in enumerate(geolevel.dictionary.to_pylist()):
        rows = geounits.filter(pc.equal(geolevel.indices, number))
        geocode, parent = _text(rows["geocode"]), _positions(name, rows["parent"], above)
        if not geolevels:
            parent = np.full(len(parent), -1)
        order = _order(geocode, parent)
        if order is not None:
            rows, geocode, parent = rows.take(order), geocode.take(order), parent[order]
        share_text = _text(pc.fill_null(rows["plb_share"], "0")).dictionary_encode()
        distinct = [Fraction(text) for text in share_text.dictionary.to_pylist()]
        shares, share_code = encode_shares(distinct, share_text.indices.to_numpy())
        geolevels.append(
            Geolevel(
                name=name,
                geocode=geocode.to_numpy(zero_copy_only=False),
                parent=parent,
                plb_shares=shares,
                plb_share_code=share_code,
                is_aian=rows["is_aian"].to_numpy(zero_copy_only=False),
                bypassed=np.array([share == 0 for share in shares])[share_code],
                n_blocks=rows["n_blocks"].to_numpy(),
            )
        )
        above = geocode
    if not shares_add_to_one(tuple(geolevels)):
        raise GeographyRefused(
            "the shares along a path of the spine do not add to exactly 1; build the spine again"
        )
    position = _positions("the blocks", blocks[geolevels[-1].name], above)
    if len(position) != len(above):
        raise GeographyRefused(_NO_TREE.format("the blocks"))
    row = np.argsort(position)
    block_geocode = _text(blocks["block_geocode"]).take(pa.array(row))
    rank = pc.rank(block_geocode, tiebreaker="first").to_numpy().astype(np.int64) - 1
    kind = (geounits.schema.metadata or {}).get(b"spine", b"").decode()
    return Spine(kind, tuple(geolevels), block_geocode.to_numpy(zero_copy_only=False), rank)


_NO_TREE = (
    "the parents of {} are not all geounits of the geolevel above, each with one child or more; "
    "build the spine again"
)


def _positions(name: str, parents: pa.ChunkedArray, above: pa.StringArray) -> np.ndarray:
    """Position in the geolevel above of each parent; refuses unknown parents, and geounits above
    without children, of which every repeated one but the first is one.
    """
    found = pc.index_in(_text(parents), value_set=above)
    if found.null_count or len(pc.unique(found)) < len(above):
        raise GeographyRefused(_NO_TREE.format(name))
    return found.to_numpy().astype(np.int64)


def is_in_order(spine: Spine) -> bool:
    """Whether `spine_from_tables` gives geounits and blocks back in the order that they have."""
    for level in spine.geolevels:
        if _order(pa.array(level.geocode, pa.string()), level.parent) is not None:
            return False
    codes = pa.array(spine.block_geocode, pa.string())
    row = np.empty(spine.n_blocks, dtype=np.int64)
    if len(spine.block_row) and spine.block_row.max() >= spine.n_blocks:
        return False
    row[spine.block_row] = np.arange(spine.n_blocks)
    by_row = codes.take(pa.array(row))
    return bool(pc.all(pc.greater(by_row[1:], by_row[:-1])).as_py() in (True, None))


def _text(column: pa.ChunkedArray) -> pa.StringArray:
    column = column.cast(pa.string())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())


def _order(geocode: pa.StringArray, parent: np.ndarray) -> np.ndarray | None:
    """Positions sorted by parent and geocode; None where they are sorted already."""
    ascends = pc.greater(geocode[1:], geocode[:-1]).to_numpy(zero_copy_only=False)
    step = np.diff(parent)
    if ((step > 0) | ((step == 0) & ascends)).all():
        return None
    keys = pa.table({"parent": parent, "geocode": geocode})
    by = [("parent", "ascending"), ("geocode", "ascending")]
    return pc.sort_indices(keys, sort_keys=by).to_numpy()
