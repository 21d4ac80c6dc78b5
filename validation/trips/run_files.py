"""Reading the public files of a trips run, without the code that wrote them.

Areas are numbered per dimension and depth in the order of `spine/trips/areas.parquet`; a node is
the tuple of its areas' numbers, as one integer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..run_files import UnusableRunFile, encode_texts


@dataclass(frozen=True, eq=False)
class Areas:
    """One depth of one dimension: the code of every area and the number of its parent."""

    codes: pd.Index
    parent: np.ndarray


@dataclass(frozen=True, eq=False)
class TripsTree:
    """The tree that a run's public files describe."""

    names: tuple[str, ...]
    areas: tuple[tuple[Areas, ...], ...]
    refined: tuple[int, ...]
    columns: tuple[dict, ...]
    total: int | None
    level_names: tuple[tuple[str, ...], ...]

    def level_name(self, level: int) -> str:
        """The levels that the refined dimensions have reached."""
        names = [
            own[depth]
            for own, depth in zip(self.level_names, self.depths(level), strict=True)
            if depth
        ]
        return ", ".join(names) or "root"

    def depths(self, level: int) -> tuple[int, ...]:
        """How often each dimension has been refined down to a level."""
        return tuple(self.refined[:level].count(number) for number in range(len(self.names)))

    def sizes(self, level: int) -> tuple[int, ...]:
        """Number of areas of each dimension at a level."""
        return tuple(
            len(areas[depth].codes)
            for areas, depth in zip(self.areas, self.depths(level), strict=True)
        )

    def parents(self, level: int, nodes: np.ndarray) -> np.ndarray:
        """The parents, in the level above, of nodes of a level."""
        number = self.refined[level - 1]
        parts = list(np.unravel_index(nodes, self.sizes(level)))
        parts[number] = self.areas[number][self.depths(level)[number]].parent[parts[number]]
        return np.ravel_multi_index(parts, self.sizes(level - 1))

    def n_children(self, level: int, nodes: np.ndarray) -> np.ndarray:
        """Numbers of children, in the level below, of each node of a level."""
        number = self.refined[level]
        own = np.unravel_index(nodes, self.sizes(level))[number]
        below = self.areas[number][self.depths(level)[number] + 1]
        return np.bincount(below.parent, minlength=self.sizes(level)[number])[own]


def read_tree(root: Path) -> TripsTree:
    """The tree of the run at `root`; raises UnusableRunFile for one that contradicts itself."""
    folder = root / "spine" / "trips"
    facts = json.loads((folder / "tree.json").read_text(encoding="utf-8"))
    table = pq.read_table(folder / "areas.parquet").to_pandas()
    dimensions, level_names = [], []
    for name in facts["dimensions"]:
        own = table[table["dimension"] == name]
        levels: list[Areas] = []
        for depth in range(int(own["depth"].max()) + 1):
            rows = own[own["depth"] == depth]
            areas = Areas(pd.Index(rows["code"]), rows["parent"].to_numpy())
            if levels and not np.array_equal(
                np.unique(areas.parent), np.arange(len(levels[-1].codes))
            ):
                raise UnusableRunFile("areas.parquet has parents that are not areas, or no parents")
            if areas.codes.has_duplicates:
                raise UnusableRunFile(f"areas.parquet names an area of {name} twice at one depth")
            levels.append(areas)
        dimensions.append(tuple(levels))
        names = own.drop_duplicates("depth").sort_values("depth")["level"]
        level_names.append(tuple(names))
    return TripsTree(
        tuple(facts["dimensions"]),
        tuple(dimensions),
        tuple(facts["refined"]),
        tuple(facts["columns"]),
        facts["total"],
        tuple(level_names),
    )


def read_level(
    tree: TripsTree, level: int, paths: list[Path], value: str
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in files of one level, and their values, in the order of the rows.

    Raises UnusableRunFile for a value that is not an integer.
    """
    depths = tree.depths(level)
    names = [name for name, depth in zip(tree.names, depths, strict=True) if depth]
    nodes, values = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=names) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=[*names, value])
                column = table[value]
                if column.null_count or not pa.types.is_integer(column.type):
                    raise UnusableRunFile(f"a {value} in {path.name} is not a whole number")
                nodes.append(nodes_of(tree, level, table, path.name))
                values.append(column.to_numpy())
    return np.concatenate(nodes), np.concatenate(values)


def level_paths(root: Path, kind: str, level: int, folder: str = "") -> list[Path]:
    """Files of a level below `kind`, in the order of their names."""
    return sorted((root / kind / f"level_{level:02d}" / folder).glob("*.parquet"))


def nodes_of(tree: TripsTree, level: int, table: pa.Table, name: str) -> np.ndarray:
    """The nodes that the columns of a table name; `name` is the name of its file."""
    parts = []
    for dimension, depth, areas in zip(tree.names, tree.depths(level), tree.areas, strict=True):
        if not depth:
            parts.append(np.zeros(table.num_rows, dtype=np.int64))
            continue
        column = encode_texts(table[dimension].combine_chunks())
        numbers = areas[depth].codes.get_indexer(column.dictionary.to_pylist())
        part = numbers[column.indices.to_numpy()]
        if (part < 0).any():
            raise UnusableRunFile(f"{name} names an area that is not of its level")
        parts.append(part)
    return np.ravel_multi_index(parts, tree.sizes(level)).astype(np.int64)
