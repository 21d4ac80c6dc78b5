"""Released rows that tell what two universes know of one record, compared with the rows of both.

In every area and answer of the query by which records are matched, rows of the one file must have
the codes that the other universe's records have, as often as these; which row has which is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import sparse

from ..outcome import Failures
from .cells import Cells

SEPARATOR = "\x1f"
"""Between codes that are joined to one text."""


@dataclass(frozen=True, eq=False)
class ExpectedDescription:
    """Columns that tell more of records, by another universe that is matched with them.

    row : (n_cells,) the answer of `query`, of the other universe, that each cell's records are
    matched in, -1 for none. columns : by name, a query of the other universe, and the code of each
    of its answers. otherwise : the codes of records that are matched with none.
    """

    universe: str
    query: str
    row: np.ndarray
    columns: Mapping[str, tuple[str, Sequence[str]]]
    otherwise: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class ReleasedRows:
    """Rows of released microdata that are alike: area, cell and number, `(n,)` each; the codes of
    the columns that describe them, joined, where there are such; and `(n_areas, n_cells)`.
    """

    area: np.ndarray
    cell: np.ndarray
    count: np.ndarray
    described: pd.Series | None
    shape: tuple[int, int]

    @property
    def counts(self) -> sparse.csr_array:
        """Counts `(n_areas, n_cells)`."""
        entries = self.count, (self.area, self.cell)
        return sparse.csr_array(sparse.coo_array(entries, shape=self.shape))


def check_description(
    description: ExpectedDescription,
    rows: ReleasedRows,
    cells: Cells,
    counts: sparse.csr_array,
    failures: Failures,
) -> None:
    """Compare the rows with the records of the other universe, `(n_areas, n_cells)`."""
    if rows.described is None:
        raise ValueError("the rows have no columns that describe them")
    answer = description.row[rows.cell]
    otherwise = SEPARATOR.join(description.otherwise[name] for name in description.columns)
    is_alone = answer < 0
    failures.add_each(
        is_alone & (rows.described != otherwise).to_numpy(),
        lambda _: f"a row that no record of {description.universe} is matched with has its codes",
    )
    found = _numbers(
        rows.area[~is_alone],
        answer[~is_alone],
        rows.described[~is_alone].to_numpy(dtype=object),
        rows.count[~is_alone],
    )
    entries = sparse.coo_array(counts)
    distinct, place = np.unique(entries.col, return_inverse=True)
    texts = np.full(distinct.size, "", dtype=object)
    for number, (query, codes) in enumerate(description.columns.values()):
        own = Cells(cells.universe, cells.sizes, cells.coarsenings).margin(query).row_of_cell
        code = np.array(codes, dtype=object)[own[distinct]]
        texts = code if number == 0 else texts + SEPARATOR + code
    matched = cells.margin(description.query).row_of_cell
    due = _numbers(entries.row, matched[entries.col], texts[place.reshape(-1)], entries.data)
    differs = found.subtract(due, fill_value=0)
    failures.add_each(
        (differs != 0).to_numpy(),
        lambda i: (
            f"the rows of area {differs.index[i][0]} do not tell the records of "
            f"{description.universe}"
        ),
    )


def _numbers(
    area: np.ndarray, answer: np.ndarray, text: np.ndarray, count: np.ndarray
) -> pd.Series:
    """Records by area, answer and codes."""
    frame = pd.DataFrame({"area": area, "answer": answer, "text": text, "count": count})
    return frame.groupby(["area", "answer", "text"])["count"].sum()
