"""Rows of microdata decoded by a layout in plain facts: the codes of columns, levels and cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import UnusableRunFile, numbered
from .cells import Cells
from .layout import Layout, LayoutColumn


@dataclass(frozen=True)
class Rows:
    """Rows of a batch: of each column of texts the distinct ones and the number of every row's.

    numbers : by column, numbers of rows. count : how many records each row stands for.
    """

    n: int
    texts: Mapping[str, tuple[Sequence[str], np.ndarray]]
    numbers: Mapping[str, np.ndarray]
    count: np.ndarray

    @classmethod
    def decoded(cls, batch: pa.RecordBatch, layout: Layout) -> Rows:
        """The rows of a batch; raises UnusableRunFile for a missing code or count."""
        texts, numbers = {}, {}
        for column in layout.columns:
            values = batch.column(column.name)
            if values.null_count:
                raise UnusableRunFile(f"a {column.name} is missing")
            if column.is_number:
                numbers[column.name] = pc.cast(values, pa.int64()).to_numpy()
            else:
                texts[column.name] = numbered(values)
        count = np.ones(batch.num_rows, dtype=np.int64)
        if layout.count is not None:
            if batch.column(layout.count).null_count:
                raise UnusableRunFile(f"a {layout.count} is missing")
            count = pc.cast(batch.column(layout.count), pa.int64()).to_numpy()
        return cls(batch.num_rows, texts, numbers, count)

    def has(self, name: str, text: str) -> np.ndarray:
        """Which rows have this text in a column."""
        distinct, index = self.texts[name]
        return np.array([value == text for value in distinct], dtype=bool)[index]

    def levels(self, columns: Sequence[LayoutColumn]) -> np.ndarray:
        """Level whose codes the columns of an attribute have together in each row, -1 for none."""
        found = [self.texts[column.name] for column in columns]
        level_of = np.full([len(distinct) for distinct, _ in found], -1)
        for level, codes in enumerate(zip(*(column.codes for column in columns), strict=True)):
            pairs = list(zip(codes, found, strict=True))
            if all(code in distinct for code, (distinct, _) in pairs):
                level_of[tuple(distinct.index(code) for code, (distinct, _) in pairs)] = level
        return level_of[tuple(index for _, index in found)]

    def cells(
        self, layout: Layout, cells: Cells, failures: Failures
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cell of each row, and which rows are of the universe itself and right.

        Rows that are neither of the universe nor further records are failures, and count as
        further; so are other constants than those of the layout. Raises UnusableRunFile for a
        layout that does not tell an attribute.
        """
        is_further = np.full(self.n, bool(layout.further))
        for name, text in layout.further.items():
            is_further &= self.has(name, text)
        is_right = np.ones(self.n, dtype=bool)
        for column in layout.columns:
            if column.constant is None:
                continue
            is_same = self.has(column.name, column.constant)
            if column.name in layout.further:
                is_right &= is_same
            else:
                failures.add_each(~is_same, f"a {column.name} is not {column.constant}")
        cell = np.zeros(self.n, dtype=np.int64)
        for attribute, size in cells.sizes.items():
            columns = [column for column in layout.columns if column.attribute == attribute]
            if len(set(zip(*(column.codes for column in columns), strict=True))) != size:
                raise UnusableRunFile(
                    f"no column of {cells.universe} tells {attribute} of its schema"
                )
            level = self.levels(columns)
            is_right &= level >= 0
            cell = cell * size + level
        failures.add_each(
            ~is_right & ~is_further,
            f"the codes of a row of {cells.universe} are none that its columns have together",
        )
        return cell, is_right & ~is_further
