"""A spine as two tables, and back with every rule of a hierarchy checked.

`geounits`: geolevel, geocode, parent, plb_share ("p/q"), is_aian, bypassed, n_blocks; one row per
geounit, root first. `blocks`: block_geocode (16 digits) and one column per geolevel with the
spine's geocode.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd

from geography.bypass import encode_shares
from geography.errors import GeographyRefused
from geography.levels import Geolevel, Spine, shares_add_to_one

GEOUNIT_COLUMNS = ("geolevel", "geocode", "parent", "plb_share", "is_aian", "bypassed", "n_blocks")


def spine_to_frames(spine: Spine) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables `geounits` and `blocks` of a spine; the root's parent is the empty text."""
    parts = []
    above = np.array([""], dtype=object)
    for level in spine.geolevels:
        share_text = np.array([str(share) for share in level.plb_shares], dtype=object)
        parent = level.parent if len(parts) else np.zeros(1, dtype=np.int64)
        parts.append(
            pd.DataFrame(
                {
                    "geolevel": pd.Categorical([level.name] * len(level), categories=spine.names),
                    "geocode": level.geocode,
                    "parent": above[parent],
                    "plb_share": share_text[level.plb_share_code],
                    "is_aian": level.is_aian,
                    "bypassed": level.bypassed,
                    "n_blocks": level.n_blocks,
                }
            )
        )
        above = level.geocode
    geounits = pd.concat(parts, ignore_index=True)
    geounits["geolevel"] = geounits["geolevel"].astype("str")
    blocks = {"block_geocode": spine.block_geocode}
    for level in spine.geolevels:
        blocks[level.name] = level.geocode[spine.ancestors(level.name)]
    return geounits, pd.DataFrame(blocks)


def spine_from_frames(geounits: pd.DataFrame, blocks: pd.DataFrame, *, kind: str) -> Spine:
    """Read a spine back from its tables.

    Geolevels must appear root first; within one, rows may stand in any order.

    Raises:
        GeographyRefused: a column is missing, a geounit stands twice, has no share, has no parent
            in the geolevel above or is its own ancestor, a block stands in two geounits of one
            geolevel or its path disagrees with the geounits' parents, or the shares of a path do
            not add to exactly 1.
    """
    missing = [column for column in GEOUNIT_COLUMNS if column not in geounits.columns]
    if missing:
        raise GeographyRefused(f"the geounits table has no column '{missing[0]}'")
    names = tuple(dict.fromkeys(geounits["geolevel"]))
    missing = [name for name in ("block_geocode", *names) if name not in blocks.columns]
    if missing:
        raise GeographyRefused(f"the blocks table has no column '{missing[0]}'")
    _check_hierarchy(geounits, names)

    geolevels: list[Geolevel] = []
    above = pd.Index([""])
    for name in names:
        rows = geounits[geounits["geolevel"] == name]
        parent = above.get_indexer(rows["parent"])
        order = np.lexsort([rows["geocode"].to_numpy(object).astype("S"), parent])
        rows, parent = rows.iloc[order], parent[order].astype(np.int64)
        geocode = rows["geocode"].to_numpy(object)
        distinct, code = np.unique(rows["plb_share"].to_numpy(object), return_inverse=True)
        shares, share_code = encode_shares([Fraction(text) for text in distinct], code)
        geolevels.append(
            Geolevel(
                name=name,
                geocode=geocode,
                parent=parent if geolevels else np.array([-1], dtype=np.int64),
                plb_shares=shares,
                plb_share_code=share_code,
                is_aian=rows["is_aian"].to_numpy(bool),
                bypassed=np.array([share == 0 for share in shares])[share_code],
                n_blocks=rows["n_blocks"].to_numpy(np.int64),
            )
        )
        above = pd.Index(geocode)
    block_geocode, block_row = _placed_blocks(geolevels, blocks)
    if not shares_add_to_one(tuple(geolevels)):
        raise GeographyRefused(
            "the shares along a path of the spine do not add to exactly 1; build the spine again"
        )
    return Spine(kind, tuple(geolevels), block_geocode, block_row)


def _check_hierarchy(geounits: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Refuse geounits without a share, duplicates, orphans and cycles."""
    for name in names:
        rows = geounits[geounits["geolevel"] == name]
        if rows["plb_share"].isna().any() or (rows["plb_share"] == "").any():
            raise GeographyRefused(
                f"geolevel '{name}' has geounits without a share; give every geolevel a share"
            )
        twice = rows["geocode"].duplicated()
        if twice.any():
            raise GeographyRefused(
                f"geounit '{rows['geocode'][twice].iloc[0]}' stands twice at geolevel '{name}'"
            )
    root = geounits[geounits["geolevel"] == names[0]]
    if len(root) != 1 or root["parent"].iloc[0] != "":
        raise GeographyRefused(
            f"the root geolevel '{names[0]}' must have one geounit and that one no parent"
        )
    for above, name in zip(names, names[1:], strict=False):
        rows = geounits[geounits["geolevel"] == name]
        known = rows["parent"].isin(geounits.loc[geounits["geolevel"] == above, "geocode"])
        if known.all():
            continue
        geocode, parent = rows.loc[~known, ["geocode", "parent"]].iloc[0]
        parents = dict(zip(geounits["geocode"], geounits["parent"], strict=True))
        if _is_own_ancestor(geocode, parents):
            raise GeographyRefused(
                f"geounit '{geocode}' at geolevel '{name}' is its own ancestor; the hierarchy "
                f"must not have a cycle, so give it a parent at geolevel '{above}'"
            )
        raise GeographyRefused(
            f"geounit '{geocode}' at geolevel '{name}' is an orphan: its parent '{parent}' is not "
            f"a geounit of geolevel '{above}'"
        )


def _is_own_ancestor(geocode: str, parents: dict[str, str]) -> bool:
    seen = set()
    position = geocode
    while position in parents and position not in seen:
        seen.add(position)
        position = parents[position]
    return position == geocode and geocode in seen


def _placed_blocks(
    geolevels: list[Geolevel], blocks: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Block geocodes in the Block level's order, and their rank among all block geocodes."""
    twice = blocks["block_geocode"].duplicated(keep=False).to_numpy()
    if twice.any():
        geocode = blocks["block_geocode"][twice].iloc[0]
        rows = blocks[blocks["block_geocode"] == geocode]
        for level in geolevels:
            held = sorted(set(rows[level.name]))
            if len(held) > 1:
                raise GeographyRefused(
                    f"block {geocode} stands in two geounits of geolevel '{level.name}', "
                    f"'{held[0]}' and '{held[1]}'; a block belongs to one"
                )
        raise GeographyRefused(f"block {geocode} stands twice in the blocks table")
    position = None
    for index in range(len(geolevels) - 1, -1, -1):
        level = geolevels[index]
        found = pd.Index(level.geocode).get_indexer(blocks[level.name])
        expected = found if position is None else geolevels[index + 1].parent[position]
        wrong = (found < 0) | (found != expected)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise GeographyRefused(
                f"block {blocks['block_geocode'].iloc[row]} names the geounit "
                f"'{blocks[level.name].iloc[row]}' at geolevel '{level.name}', which is not the "
                "one that its path through the geounits leads to"
            )
        position = found
        if index == len(geolevels) - 1:
            block_position = found
    last = geolevels[-1]
    if len(blocks) != len(last):
        raise GeographyRefused("a geounit of the last geolevel has no block")
    geocode = np.empty(len(blocks), dtype=object)
    geocode[block_position] = blocks["block_geocode"].to_numpy(object)
    rank = np.empty(len(blocks), dtype=np.int64)
    rank[np.argsort(geocode.astype("S16"), kind="stable")] = np.arange(len(blocks))
    return geocode, rank
