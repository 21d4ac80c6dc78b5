"""Released rows that tell what two universes know of one record, compared with the rows of both.

In every area and answer of the query by which records are matched, rows of the one file must have
the codes that the other universe's records have, as often as these; which row has which is free.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse

from ..outcome import Failures
from .cells import Cells
from .layout import ExpectedDescription
from .microdata import SEPARATOR, ReleasedRows


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
    area, cell = np.divmod(rows.key, rows.n_cells)
    answer = description.row[cell]
    otherwise = SEPARATOR.join(description.otherwise[name] for name in description.columns)
    is_alone = answer < 0
    failures.add_each(
        is_alone & (rows.described != otherwise),
        lambda _: f"a row that no record of {description.universe} is matched with has its codes",
    )
    found = _numbers(
        area[~is_alone], answer[~is_alone], rows.described[~is_alone], rows.count[~is_alone]
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
