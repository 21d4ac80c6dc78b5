"""Tables of group sizes and of persons, as counts of groups by finest region and size."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ....validation.group_sizes.input_rules import RULES, record_rules, size_rules
from ...census.counting import RawColumns
from ...census.histograms import block_histogram
from ...tables.columns import CodedColumn, KeyIndex, trimmed_texts
from ...tables.findings import RuleTally
from ...tables.layouts import TableLayout
from ...tables.readers import Batch, Selection, read_batches
from ...tables.sources import InputFile

SIZES_LAYOUT = TableLayout.expected("sizes", {"region": "key", "size": "number", "count": "number"})
RECORDS_LAYOUT = TableLayout.expected(
    "records", {"person": "key", "unit": "key", "region": "key", "quantity": "number"}
)
NUMBERS_LAYOUT = TableLayout.expected("numbers", {"region": "key", "groups": "number"})
NOT_A_NUMBER = -1

_WHOLE = re.compile(r"[0-9]{1,12}(\.0*)?", re.ASCII)


def count_sizes(
    path: str,
    name: str,
    regions: np.ndarray,
    sizes: tuple[int, int],
    tally: RuleTally,
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
    file = InputFile("sizes", path, name, SIZES_LAYOUT)
    pairs = []
    for batch in read_batches(file, Selection(SIZES_LAYOUT.names)):
        region = index.positions_by_value(batch["region"])
        size, count = _numbers(batch, "size", SIZES_LAYOUT), _numbers(batch, "count", SIZES_LAYOUT)
        if raw is not None:
            raw.add({"size": _code_column(batch, "size", SIZES_LAYOUT)}, region, count)
        is_pair = (region >= 0) & (size != NOT_A_NUMBER)
        pairs.append(pd.DataFrame({"region": region[is_pair], "size": size[is_pair]}))
        if is_top_coded:
            size = np.minimum(size, largest)
        is_size = (size >= smallest) & (size <= largest)
        tally.add(known, int((region < 0).sum()))
        tally.add(valid_size, int((~is_size).sum()))
        tally.add(valid_count, int((count == NOT_A_NUMBER).sum()))
        tally.see(valid_size, _distinct(size))
        tally.see(valid_count, _distinct(count))
        good = (region >= 0) & is_size & (count > 0)
        entries = (count[good], (region[good], size[good] - smallest))
        counts += sparse.csr_array(entries, shape=counts.shape)
    counts.sum_duplicates()
    tally.add(once, int(pd.concat(pairs).duplicated().sum()) if pairs else 0)
    return counts


def count_records(
    path: str,
    name: str,
    regions: np.ndarray,
    sizes: tuple[int, int],
    quantity: int,
    tally: RuleTally,
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
    file = InputFile("records", path, name, RECORDS_LAYOUT)
    persons, units, places, amounts = [], [], [], []
    for batch in read_batches(file, Selection(("person", "unit", "region"), with_others=True)):
        persons.append(trimmed_texts(batch["person"]))
        units.append(trimmed_texts(batch["unit"]))
        places.append(index.positions_by_value(batch["region"]))
        if "quantity" in batch:
            blank = pc.is_null(trimmed_texts(batch["quantity"])).to_numpy(zero_copy_only=False)
            amounts.append(np.where(blank, 1, _numbers(batch, "quantity", RECORDS_LAYOUT)))
            if raw is not None:
                column = _code_column(batch, "quantity", RECORDS_LAYOUT)
                raw.add_rows({"quantity": column}, places[-1])
        else:
            amounts.append(np.ones(len(places[-1]), dtype=np.int64))
    person, unit = pa.chunked_array(persons), pa.chunked_array(units)
    region, amount = np.concatenate(places), np.concatenate(amounts)
    tally.add(once, len(person) - int(pc.count_distinct(person, mode="only_valid").as_py()))
    tally.add(named, unit.null_count)
    tally.add(known, int((region < 0).sum()))
    is_amount = (amount >= 0) & (amount <= quantity)
    tally.add(valid_quantity, int((~is_amount).sum()))
    tally.see(valid_quantity, _distinct(amount))

    codes, found = pd.factorize(unit.to_pandas(), use_na_sentinel=True)
    good = (codes >= 0) & (region >= 0) & is_amount
    codes, region, amount = codes[good], region[good], amount[good]
    first = np.full(len(found), -1, dtype=np.int64)
    first[codes[::-1]] = region[::-1]
    tally.add(one_region, int((region != first[codes]).sum()))
    size = np.bincount(codes, weights=amount, minlength=len(found)).astype(np.int64)
    smallest, largest = sizes
    if is_top_coded:
        size = np.minimum(size, largest)
    is_unit = first >= 0
    is_size = (size >= smallest) & (size <= largest)
    tally.add(valid_size, int((is_unit & ~is_size).sum()))
    tally.see(valid_size, _distinct(size[is_unit]))
    counted = is_unit & is_size
    return block_histogram(
        first[counted],
        size[counted] - smallest,
        n_blocks=len(regions),
        n_cells=largest - smallest + 1,
    )


def read_numbers(path: str, name: str, regions: np.ndarray, tally: RuleTally) -> np.ndarray | None:
    """Public numbers of groups (n_regions,) of a table with columns region, groups.

    None if a region is unknown, missing or there twice, or a number is invalid. Raises
    UnreadableInput for a file that cannot be read.
    """
    known, once, valid = RULES.of("numbers")
    index = KeyIndex(pa.array(regions, pa.string()))
    file = InputFile("numbers", path, name, NUMBERS_LAYOUT)
    batches = list(read_batches(file, Selection(NUMBERS_LAYOUT.names)))
    position = np.concatenate([index.positions_by_value(batch["region"]) for batch in batches])
    groups = np.concatenate([_numbers(batch, "groups", NUMBERS_LAYOUT) for batch in batches])
    times = np.bincount(position[position >= 0], minlength=len(regions))
    tally.add(known, int((position < 0).sum()))
    tally.add(once, int((times != 1).sum()))
    tally.add(valid, int((groups == NOT_A_NUMBER).sum()))
    tally.see(valid, _distinct(groups))
    if not tally.is_clean:
        return None
    ordered = np.empty(len(regions), dtype=np.int64)
    ordered[position] = groups
    return ordered


def _numbers(batch: Batch, name: str, layout: TableLayout) -> np.ndarray:
    """Whole numbers of a column, int64; `NOT_A_NUMBER` for blanks, other texts and negative
    numbers."""
    return _code_column(batch, name, layout).lookup(_parse_integer, np.int64)


def _code_column(batch: Batch, name: str, layout: TableLayout) -> CodedColumn:
    return CodedColumn.from_arrow(batch[name], layout.field(name))


def _distinct(numbers: np.ndarray) -> list[int | None]:
    """The distinct numbers, None for a text that is no number."""
    return [None if n == NOT_A_NUMBER else n for n in np.unique(numbers).tolist()]


def _parse_integer(text: str | None) -> int:
    if text is None or _WHOLE.fullmatch(text) is None:
        return NOT_A_NUMBER
    return int(text.partition(".")[0])
