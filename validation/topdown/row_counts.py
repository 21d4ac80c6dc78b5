"""Rows of microdata counted by block and by the codes that variables of tables ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ..run_files import ROWS_PER_BATCH, UnusableRunFile, numbered, opened
from .area_index import AreaIndex
from .run_files import row_groups_with

_STATE_DIGITS = (0, 2)


@dataclass(frozen=True)
class Variable:
    """A variable of a table: it counts a universe's rows with one of the codes in every column."""

    name: str
    universe: str
    codes: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class BlockCounts:
    """How many rows each variable of a universe counts in each block.

    rows : (n_blocks, n_kinds) rows of each kind, a combination of codes. counted : (n_kinds,
    n_variables) whether a variable counts a kind. columns : (n_variables,) where variables stand
    among those of all universes.
    """

    rows: sparse.csr_array
    counted: np.ndarray
    columns: np.ndarray

    def add_to(self, counts: np.ndarray, blocks: slice) -> None:
        """Add what is counted in some blocks to `counts` (blocks, all variables)."""
        counts[:, self.columns] += self.rows[blocks] @ self.counted

    def add_sums_to(self, sums: np.ndarray, within: sparse.csr_array, blocks: slice) -> None:
        """Add what is counted in some blocks, those that are `within` (areas, blocks) each area, to
        `sums` (areas, all variables): kind by kind, of which there are few in an area."""
        sums[:, self.columns] += (within @ self.rows[blocks]) @ self.counted


def count_rows(
    path: Path,
    place: Mapping[str, tuple[int, int]],
    variables: Mapping[int, Variable],
    blocks: np.ndarray,
) -> BlockCounts:
    """Count the rows of all states that have some of the blocks, by variable.

    `place` has the columns with characters of the block's geocode, `variables` those of the file's
    universe by their numbers, and `blocks` (n_blocks,) are geocodes, all of their states. The file
    is read in batches; memory is that of the distinct rows of its blocks.

    Raises UnusableRunFile for a row of another block of these states, and for missing codes.
    """
    known = {
        name: {code: n for n, code in enumerate(sorted(codes))}
        for name, codes in _codes_of(variables).items()
    }
    sizes = {name: len(codes) + 1 for name, codes in known.items()}
    n_kinds = int(np.prod([*sizes.values()], dtype=np.int64))
    geocode = pa.array(blocks, pa.string())
    index = AreaIndex.of(
        {name: pc.utf8_slice_codeunits(geocode, *digits) for name, digits in place.items()}
    )
    states = sorted(set(pc.utf8_slice_codeunits(geocode, *_STATE_DIGITS).unique().to_pylist()))
    keys, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    for batch in _batches_of_states(path, place, list(known), states):
        texts = {name: _numbered(batch, name) for name in (*place, *known)}
        of_state, state = texts[_state_column(place)]
        is_here = np.array([text in states for text in of_state], dtype=bool)[state]
        block = index.areas(texts)
        if (block[is_here] < 0).any():
            raise UnusableRunFile(f"{path.name} has a block that the geography does not have")
        kind = np.zeros(batch.num_rows, dtype=np.int64)
        for name, codes in known.items():
            values, code = texts[name]
            numbers = np.array([codes.get(value, len(codes)) for value in values], dtype=np.int64)
            kind = kind * sizes[name] + numbers[code]
        distinct, n = np.unique((block * n_kinds + kind)[is_here], return_counts=True)
        keys.append(distinct)
        times.append(n.astype(np.int32))
    key, n = np.concatenate(keys), np.concatenate(times)
    del keys, times
    kinds, kind = np.unique(key % n_kinds, return_inverse=True)
    rows = sparse.csr_array(
        sparse.coo_array((n, (key // n_kinds, kind)), shape=(len(blocks), len(kinds)))
    )
    return BlockCounts(rows, _counted(kinds, known, variables), np.array([*variables]))


def _codes_of(variables: Mapping[int, Variable]) -> dict[str, set[str]]:
    """The codes that variables ask for, by column."""
    codes: dict[str, set[str]] = {}
    for variable in variables.values():
        for name, allowed in variable.codes.items():
            codes.setdefault(name, set()).update(allowed)
    return codes


def _counted(
    kinds: np.ndarray, known: Mapping[str, Mapping[str, int]], variables: Mapping[int, Variable]
) -> np.ndarray:
    """(n_kinds, n_variables) whether a variable counts the rows of a kind, as int64."""
    code_of: dict[str, np.ndarray] = {}
    rest = kinds
    for name in reversed(list(known)):
        rest, code_of[name] = np.divmod(rest, len(known[name]) + 1)
    counted = np.ones((len(kinds), len(variables)), dtype=np.int64)
    for position, variable in enumerate(variables.values()):
        for name, allowed in variable.codes.items():
            is_allowed = np.array([*(code in allowed for code in known[name]), False])
            counted[:, position] &= is_allowed[code_of[name]]
    return counted


def _state_column(place: Mapping[str, tuple[int, int]]) -> str:
    return next(name for name, digits in place.items() if digits == _STATE_DIGITS)


def _batches_of_states(
    path: Path, place: Mapping[str, tuple[int, int]], codes: list[str], states: list[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of the columns of place and codes, of row groups that may have one of the states."""
    columns = [*place, *codes]
    with opened(path, columns, columns) as file:
        groups = row_groups_with(
            file,
            _state_column(place),
            lambda low, high: any(low <= state <= high for state in states),
        )
        yield from file.iter_batches(batch_size=ROWS_PER_BATCH, row_groups=groups, columns=columns)


def _numbered(batch: pa.RecordBatch, name: str) -> tuple[list[str], np.ndarray]:
    """The distinct texts of a column, and the number of each row's."""
    if batch.column(name).null_count:
        raise UnusableRunFile(f"a {name} is missing")
    return numbered(batch.column(name))
