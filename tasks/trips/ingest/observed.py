"""The values of a table's level columns, from the table itself.

What a table happens to hold decides then what is measured, so this is for tables that are not
confidential, or whose values have been declared public.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...tables.columns import CodedColumn
from ...tables.layouts import Field
from ...tables.readers import Selection, read_batches
from ...tables.sources import InputFile
from .areas import Level


def observed_levels(file: InputFile, columns: Sequence[str]) -> list[list[Level]]:
    """The values that occur, one list of nested levels for each dimension.

    A column lies in the one before it if each of its values occurs with one value of that column
    alone, and if it has more values. Raises UnreadableInput.
    """
    pairs: dict[tuple[str, str], set[tuple[str | None, str | None]]] = {}
    values: dict[str, set[str]] = {column: set() for column in columns}
    for batch in read_batches(file, Selection(tuple(columns))):
        coded = {
            column: CodedColumn.from_arrow(batch[column], Field(column, "text"))
            for column in columns
        }
        for column in columns:
            values[column].update(value for value in coded[column].values if value is not None)
        for above, below in zip(columns, columns[1:], strict=False):
            size = len(coded[below].values)
            together = np.unique(coded[above].codes.astype(np.int64) * size + coded[below].codes)
            pairs.setdefault((above, below), set()).update(
                (coded[above].values[pair // size], coded[below].values[pair % size])
                for pair in together
            )
    dimensions: list[list[Level]] = []
    for position, column in enumerate(columns):
        above = columns[position - 1] if position else ""
        parents = _parents(pairs.get((above, column), set()), values.get(above, set()))
        codes = sorted(values[column])
        if parents is not None and set(parents) == set(codes):
            own = pd.DataFrame({"area": codes, "parent": [parents[code] for code in codes]})
            dimensions[-1].append((column, own))
        else:
            dimensions.append([(column, pd.DataFrame({"area": codes, "parent": ""}))])
    return dimensions


def _parents(pairs: set[tuple[str | None, str | None]], above: set[str]) -> dict[str, str] | None:
    """Every value's one partner in the column before; None if the column does not lie in it."""
    known = [(parent, code) for parent, code in pairs if parent is not None and code is not None]
    parents = {code: parent for parent, code in known}
    is_nested = len(parents) == len(known) and len(parents) > len(above) > 0
    return parents if is_nested and set(parents.values()) == above else None
