"""A spine as two Arrow tables, and back with every rule of a hierarchy checked.

`geounits`: geolevel, geocode, parent, plb_share ("p/q"), is_aian, bypassed, n_blocks; one row per
geounit, root first; the schema's metadata holds the kind of spine under "spine". `blocks`:
block_geocode (16 digits) and one column per geolevel with the spine's geocode.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .bypass import encode_shares
from .levels import GeographyRefused, Geolevel, Spine, shares_add_to_one

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
        GeographyRefused: a column is missing, a geounit is repeated, has no share, has no parent in
            the geolevel above or is its own ancestor, a block is in two geounits of one geolevel or
            its path disagrees with the geounits' parents, a geounit has no block, or the shares of
            a path do not add to exactly 1.
    """
    missing = [name for name in GEOUNIT_COLUMNS if name not in geounits.column_names]
    if missing:
        raise GeographyRefused(f"the geounits table has no column '{missing[0]}'")
    geolevel = _text(geounits["geolevel"]).dictionary_encode()
    names = tuple(geolevel.dictionary.to_pylist())
    missing = [name for name in ("block_geocode", *names) if name not in blocks.column_names]
    if missing:
        raise GeographyRefused(f"the blocks table has no column '{missing[0]}'")

    geolevels: list[Geolevel] = []
    codes: list[pa.StringArray] = []
    for number, name in enumerate(names):
        rows = geounits.filter(pc.equal(geolevel.indices, number))
        geocode, parent = _checked_links(name, rows, names, codes, geounits)
        order = _order(geocode, parent)
        if order is not None:
            rows, geocode, parent = rows.take(order), geocode.take(order), parent[order]
        share_text = _text(rows["plb_share"]).dictionary_encode()
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
        codes.append(geocode)
    block_geocode, block_row = _placed_blocks(geolevels, codes, blocks)
    if not shares_add_to_one(tuple(geolevels)):
        raise GeographyRefused(
            "the shares along a path of the spine do not add to exactly 1; build the spine again"
        )
    kind = (geounits.schema.metadata or {}).get(b"spine", b"").decode()
    return Spine(kind, tuple(geolevels), block_geocode, block_row)


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


def _checked_links(
    name: str,
    rows: pa.Table,
    names: tuple[str, ...],
    codes_above: list[pa.StringArray],
    geounits: pa.Table,
) -> tuple[pa.StringArray, np.ndarray]:
    """Geocodes of a geolevel and the positions of their parents in the geolevel above.

    Refuses geounits without a share, duplicates, orphans and cycles.
    """
    geocode, parent_code = _text(rows["geocode"]), _text(rows["parent"])
    share = rows["plb_share"]
    if share.null_count or pc.any(pc.equal(share, "")).as_py():
        raise GeographyRefused(
            f"geolevel '{name}' has geounits without a share; give every geolevel a share"
        )
    twice = _first_duplicate(geocode)
    if twice is not None:
        raise GeographyRefused(f"geounit '{twice}' is repeated at geolevel '{name}'")
    if not codes_above:
        if parent_code.to_pylist() != [""]:
            raise GeographyRefused(
                f"the root geolevel '{name}' must have one geounit and that one no parent"
            )
        return geocode, np.array([-1], dtype=np.int64)
    found = pc.index_in(parent_code, value_set=codes_above[-1])
    if found.null_count:
        above = names[len(codes_above) - 1]
        orphan = int(np.argmax(found.is_null()))
        code, parent = geocode[orphan].as_py(), parent_code[orphan].as_py()
        if _is_own_ancestor(code, geounits):
            raise GeographyRefused(
                f"geounit '{code}' at geolevel '{name}' is its own ancestor; the hierarchy "
                f"must not have a cycle, so give it a parent at geolevel '{above}'"
            )
        raise GeographyRefused(
            f"geounit '{code}' at geolevel '{name}' is an orphan: its parent '{parent}' is not "
            f"a geounit of geolevel '{above}'"
        )
    parent = found.to_numpy().astype(np.int64)
    childless = np.bincount(parent, minlength=len(codes_above[-1])) == 0
    if childless.any():
        above = names[len(codes_above) - 1]
        raise GeographyRefused(
            f"geounit '{codes_above[-1][int(np.argmax(childless))]}' at geolevel '{above}' has no "
            f"child at geolevel '{name}'"
        )
    return geocode, parent


def _first_duplicate(texts: pa.StringArray) -> str | None:
    """A repeated text, None if all are distinct."""
    if pc.count_distinct(texts, mode="all").as_py() == len(texts):
        return None
    counts = pc.value_counts(texts)
    return counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()


def _is_own_ancestor(geocode: str, geounits: pa.Table) -> bool:
    pairs = zip(geounits["geocode"].to_pylist(), geounits["parent"].to_pylist(), strict=True)
    parents = dict(pairs)
    seen = set()
    position = geocode
    while position in parents and position not in seen:
        seen.add(position)
        position = parents[position]
    return position == geocode and geocode in seen


def _placed_blocks(
    geolevels: list[Geolevel], codes: list[pa.StringArray], blocks: pa.Table
) -> tuple[np.ndarray, np.ndarray]:
    """Block geocodes in the Block level's order, and their rank among all block geocodes."""
    block_geocode = _text(blocks["block_geocode"])
    twice = _first_duplicate(block_geocode)
    if twice is not None:
        rows = blocks.filter(pc.equal(block_geocode, twice))
        for level in geolevels:
            held = sorted(set(rows[level.name].to_pylist()))
            if len(held) > 1:
                raise GeographyRefused(
                    f"block {twice} is in two geounits of geolevel '{level.name}', "
                    f"'{held[0]}' and '{held[1]}'; a block belongs to one"
                )
        raise GeographyRefused(f"block {twice} is repeated in the blocks table")
    placed = pc.index_in(_text(blocks[geolevels[-1].name]), value_set=codes[-1])
    position = pc.fill_null(placed, 0).to_numpy().astype(np.int64)
    block_position = position
    for level, code in zip(reversed(geolevels), reversed(codes), strict=True):
        named = _text(blocks[level.name])
        right = pc.fill_null(pc.equal(named, code.take(pa.array(position))), False)
        if not pc.all(right).as_py():
            row = int(np.argmin(right))
            raise GeographyRefused(
                f"block {block_geocode[row]} names the geounit '{named[row]}' at geolevel "
                f"'{level.name}', which is not the one that its path through the geounits leads to"
            )
        position = level.parent[position]
    if (np.bincount(block_position, minlength=len(codes[-1])) != 1).any():
        raise GeographyRefused("a geounit of the last geolevel has no block, or several")
    ordered = np.empty(len(block_position), dtype=np.int64)
    ordered[block_position] = np.arange(len(block_position))
    block_geocode = block_geocode.take(pa.array(ordered))
    rank = pc.rank(block_geocode, tiebreaker="first").to_numpy().astype(np.int64) - 1
    return block_geocode.to_numpy(zero_copy_only=False), rank
