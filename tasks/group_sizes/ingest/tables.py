"""Tables of group sizes and of persons, as counts of groups by finest region and size."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ....validation.rules import Value, record_rules, size_rules
from ...census.counting import RawColumns
from ...census.histograms import block_histogram
from ...tables.columns import CodedColumn, KeyIndex, trimmed_texts
from ...tables.layouts import Field, Kind
from ...tables.readers import Batch, Selection, read_batches
from ...tables.sources import InputFile
from ...tables.value_tallies import ValueTally

SIZES: Mapping[str, Kind] = {"region": "key", "size": "number", "count": "number"}
RECORDS: Mapping[str, Kind] = {
    "person": "key",
    "unit": "key",
    "region": "key",
    "quantity": "number",
}
"""Columns of the tables, by their kinds."""
NOT_A_NUMBER = -1

_WHOLE = re.compile(r"[0-9]{1,12}(\.0*)?", re.ASCII)


def count_sizes(
    file: InputFile,
    regions: np.ndarray,
    sizes: tuple[int, int],
    tally: ValueTally,
    *,
    is_top_coded: bool = False,
    raw: RawColumns | None = None,
) -> sparse.csr_array:
    """Counts (n_regions, n_sizes) of a table with columns region, size, count.

    A second row of a region and a size is tallied, though counted: a table that was appended twice
    would count twice the groups. Rows that break another rule are tallied and skipped. With a top
    code the largest size counts all above it too. `raw` gets the sizes as they are, if given.
    Raises UnreadableInput for a file that cannot be read.
    """
    known, valid_size, valid_count, once = size_rules(*sizes, is_top_coded=is_top_coded)
    index = KeyIndex(pa.array(regions, pa.string()))
    smallest, largest = sizes
    counts = sparse.csr_array((len(regions), largest - smallest + 1), dtype=np.int64)
    file = file.with_columns(SIZES)
    pairs = []
    for batch in read_batches(file, Selection(tuple(SIZES))):
        region = index.positions_by_value(batch["region"])
        size, count = _numbers(batch, "size"), _numbers(batch, "count")
        if raw is not None:
            raw.add({"size": _code_column(batch, "size")}, region, count)
        is_pair = (region >= 0) & (size != NOT_A_NUMBER)
        pairs.append(pd.DataFrame({"region": region[is_pair], "size": size[is_pair]}))
        if is_top_coded:
            size = np.minimum(size, largest)
        is_size = (size >= smallest) & (size <= largest)
        tally.count(known, (region < 0).sum())
        tally.look_at(valid_size, _counts(size))
        tally.look_at(valid_count, _counts(count))
        good = (region >= 0) & is_size & (count > 0)
        entries = (count[good], (region[good], size[good] - smallest))
        counts += sparse.csr_array(entries, shape=counts.shape)
    counts.sum_duplicates()
    tally.count(once, pd.concat(pairs).duplicated().sum())
    return counts


def count_records(
    file: InputFile,
    regions: np.ndarray,
    sizes: tuple[int, int],
    quantity: int,
    tally: ValueTally,
    *,
    is_top_coded: bool = False,
    raw: RawColumns | None = None,
) -> sparse.csr_array:
    """Counts (n_regions, n_sizes) of the units of a table with a row for every person.

    Columns person, unit, region and, if it is there, quantity, which adds up to a unit's size and
    is 1 where it is missing or empty. Breaches, errors and the top code are as for `count_sizes`;
    `raw` gets the quantities.
    """
    once, named, known, one_region, valid_quantity, valid_size = record_rules(
        *sizes, quantity, is_top_coded=is_top_coded
    )
    index = KeyIndex(pa.array(regions, pa.string()))
    file = file.with_columns(RECORDS)
    persons, units, places, amounts = [], [], [], []
    for batch in read_batches(file, Selection(("person", "unit", "region"), with_others=True)):
        persons.append(trimmed_texts(batch["person"]))
        units.append(trimmed_texts(batch["unit"]))
        places.append(index.positions_by_value(batch["region"]))
        if "quantity" in batch:
            blank = pc.is_null(trimmed_texts(batch["quantity"])).to_numpy(zero_copy_only=False)
            amounts.append(np.where(blank, 1, _numbers(batch, "quantity")))
            if raw is not None:
                column = _code_column(batch, "quantity")
                raw.add({"quantity": column}, places[-1])
        else:
            amounts.append(np.ones(len(places[-1]), dtype=np.int64))
    person, unit = pa.chunked_array(persons), pa.chunked_array(units)
    region, amount = np.concatenate(places), np.concatenate(amounts)
    tally.count(once, len(person) - pc.count_distinct(person, mode="only_valid").as_py())
    tally.count(named, unit.null_count)
    tally.count(known, (region < 0).sum())
    is_amount = (amount >= 0) & (amount <= quantity)
    tally.look_at(valid_quantity, _counts(amount))

    codes, found = pd.factorize(unit.to_pandas(), use_na_sentinel=True)
    good = (codes >= 0) & (region >= 0) & is_amount
    codes, region, amount = codes[good], region[good], amount[good]
    first = np.full(len(found), -1, dtype=np.int64)
    first[codes[::-1]] = region[::-1]
    tally.count(one_region, (region != first[codes]).sum())
    size = np.bincount(codes, weights=amount, minlength=len(found)).astype(np.int64)
    smallest, largest = sizes
    if is_top_coded:
        size = np.minimum(size, largest)
    is_unit = first >= 0
    is_size = (size >= smallest) & (size <= largest)
    tally.look_at(valid_size, _counts(size[is_unit]))
    counted = is_unit & is_size
    return block_histogram(
        first[counted],
        size[counted] - smallest,
        n_blocks=len(regions),
        n_cells=largest - smallest + 1,
    )


def _numbers(batch: Batch, name: str) -> np.ndarray:
    """Whole numbers of a column, int64; `NOT_A_NUMBER` for blanks, other texts and negative
    numbers."""
    return _code_column(batch, name).lookup(_parse_integer, np.int64)


def _code_column(batch: Batch, name: str) -> CodedColumn:
    return CodedColumn.from_arrow(batch[name], Field(name, "number"))


def _counts(numbers: np.ndarray) -> dict[Value, int]:
    """Rows of each distinct number, None for a text that is no number."""
    distinct, rows = (each.tolist() for each in np.unique(numbers, return_counts=True))
    return {None if n == NOT_A_NUMBER else n: k for n, k in zip(distinct, rows, strict=True)}


def _parse_integer(text: str | None) -> int:
    if text is None or _WHOLE.fullmatch(text) is None:
        return NOT_A_NUMBER
    return int(text.partition(".")[0])
