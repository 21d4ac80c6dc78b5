"""Occupants: rows of another table that tell something of the records that they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..tables.columns import (
    CodedColumn,
    GrowingColumn,
    KeyColumn,
    KeyIndex,
    canonical_keys,
    is_inexact_key,
)
from ..tables.copies import RecordSums
from ..tables.mapped import zeros
from ..tables.sources import InputFile
from .declarations import OccupantDeclaration
from .evidence import EvidenceTally
from .joins import at_rows, first_rows, read_coded, taken
from .recodes import CodeSet

NUMBER = "number"
"""Column of occupants that says how many there are."""


@dataclass(frozen=True, eq=False)
class Occupants:
    """What rows of another table tell of the records that they belong to, by `<name>.column`.

    key : column of the records that `index`, of the rows' references, is asked for.
    number : by row, how many have its reference, at the first of them; 0 elsewhere.
    n_rows : rows of each file.
    """

    key: str
    index: KeyIndex
    columns: Mapping[str, CodedColumn]
    number_name: str
    number: np.ndarray
    n_rows: np.ndarray

    def of(self, keys: pa.Array) -> dict[str, CodedColumn]:
        """The columns of records with these keys."""
        row = self.index.positions(canonical_keys(keys))
        found = {name: taken(column, row) for name, column in self.columns.items()}
        number = at_rows(self.number, row, 0)
        texts = tuple(str(n) for n in range(int(number.max(initial=0)) + 1))
        return found | {self.number_name: CodedColumn(number, texts)}

    def unknown(self, keys: KeyColumn) -> list[np.ndarray]:
        """By file, the rows `(n_rows,)` whose reference is none of the keys of all records, at the
        first with the same reference.
        """
        numbers = np.array(self.number)
        for part in keys.chunks():
            row = self.index.positions(part)
            numbers[row[row >= 0]] = 0
        return np.split(numbers, np.cumsum(self.n_rows)[:-1])


def load_occupants(
    files: Sequence[InputFile],
    declared: OccupantDeclaration,
    name: str,
    columns: Sequence[str],
    suite: str,
    evidence: EvidenceTally,
    scratch: Path | None = None,
) -> Occupants:
    """The rows of a universe's occupants of a name, with the columns that attributes read.

    Evidence: rows whose reference is a float that identifies nothing; rows that are not alone of
    one record, where attributes read their columns. Raises UnreadableInput.
    """
    conditions = {column: CodeSet.of(codes) for column, codes in declared.where.items()}
    wanted = tuple(column for column in columns if column != NUMBER)
    texts = tuple(dict.fromkeys((*wanted, *conditions)))
    keys, found = KeyColumn(scratch), {column: GrowingColumn(scratch) for column in wanted}
    n_rows = np.zeros(len(files), dtype=np.int64)
    sums = RecordSums(files)
    for file, batch, coded in read_coded(files, texts, (declared.column,)):
        sums.add(file, batch, coded, (declared.column,))
        fits = np.ones(len(batch[declared.column]), dtype=bool)
        for column, codes in conditions.items():
            fits &= coded[column].lookup(codes.holds, bool)
        references = batch[declared.column].filter(pa.array(fits))
        keys.add(canonical_keys(references))
        if n := int(is_inexact_key(references).sum()):
            evidence.add(suite, f"unknown_key_of_{name}", {True: n}, file=file)
        for column, growing in found.items():
            growing.append(coded[column].at(fits))
        n_rows[file] += int(fits.sum())
    evidence.files.add_records(sums)
    index = KeyIndex(keys)
    if wanted:
        evidence.add_masks(suite, f"repeated_{name}", index.is_repeated, n_rows)
    first = first_rows(index, keys, scratch)
    number = zeros(len(first), np.int64, scratch)
    np.add.at(number, first[first >= 0], 1)
    named = {f"{name}.{column}": growing.column() for column, growing in found.items()}
    return Occupants(declared.key, index, named, f"{name}.{NUMBER}", number, n_rows)
