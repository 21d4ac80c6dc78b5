"""Keyed digests that recognise the same people again in any file.

A digest is an HMAC-SHA256, under the ledger's key, of the sorted rows of a canonical table, so it
does not depend on the order of records, on file formats, or on columns that only one product
reads. A plain hash would let anyone with a guess of the records confirm it; without the key
the digests reveal nothing.

An input has one digest that names it. For persons, it covers the count of each combination of the
attributes declared by their census, by block. Where the first column is a block geocode there is
also a digest for each county, by which ledgers of older versions know the counties of a state. In
tables of another form people are recognised by digests of each geounit's contents, column by
column.

Each column of a table of people becomes counts of raw values by area. The digests depend on
nothing else: no name of a column, a universe, an area or a file, no recode, no order. Each value
has a keyed hash, and a geounit the sum of its records' hashes, which is a multiset hash (Clarke and
others, Incremental multiset hash functions, 2003). Three kinds of digests are made of the sums:

    records   of a geounit: the values of its records
    areas     of a geounit and a finer geolevel: which values each of its geounits there holds
    value     of a large geounit, one value and a finer geolevel: how many of its records have the
              value in each of its geounits there

The first recognises people whose areas are grouped in another way, a part of the areas and the
whole that a part comes from; the second also columns of few values; the third rows of a table that
were chosen by one of its columns. One common column of two tables is enough.

Chance agreement must not recognise anyone: a geounit without people, or with one ordinary person,
has no digest. The information of a multiset is bounded from below, in bits: each count n of a
value carries at least 1 + log2(n) / 2, which is less than the collision entropy of two Poisson
counts of mean n. One digest of `STRONG_BITS` is enough to recognise people; from `WEAK_BITS` up to
that, `ENOUGH_WEAK` digests are needed. Each list has at most `MOST` digests, the ones with the
smallest keyed hashes, so that two tables keep the same digests of their common people. Lists are
padded to a length that follows from public geography, so that the number of digests reveals
nothing about the people.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b, shake_256
from pathlib import Path

import numpy as np
from scipy import sparse

from ..runs.files import while_unchanged
from ..tables.columns import cut_at, without_point

DIGITS_BELOW_COUNTY = 11

_ROWS_AT_ONCE = 1 << 20
"""Rows laid out in one step where there are no counties to split by."""

INPUT_DIGESTS = "input_digests.json"
"""Name of the file with the digests of a run's input, in its confidential folder."""


ENOUGH_WEAK = 4
"""Digests of less information that recognise people together."""


@dataclass(frozen=True)
class PeopleDigests:
    """Digests that recognise people: each `strong` one alone, `weak` ones together.

    `filling` is padding that recognises no one: it makes the number of digests public.
    """

    strong: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputDigest:
    """Digest of an input, and digests that recognise its people in another table.

    Each of `parts` recognises people by itself: digests by county where the input has blocks, and
    the strong digests. Several `weak` ones are needed, and `filling` is padding that recognises no
    one. Earlier versions had fewer of these.
    """

    whole: str
    parts: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()

    def recognised_by(self, people: PeopleDigests) -> InputDigest:
        """The digest of an input that the digests of its raw columns recognise too."""
        return InputDigest(
            self.whole,
            (*self.parts, *people.strong),
            (*self.weak, *people.weak),
            (*self.filling, *people.filling),
        )


def input_digest(kind: str, columns: Mapping[str, np.ndarray], key: bytes) -> InputDigest:
    """Digest of the multiset of rows of a table, and of each county's if it has blocks.

    `kind` ("persons", "trips", ...) and the column names take part. Columns (n,) hold integers or
    strings; a first column named `block_geocode` may hold either.

    >>> ages = {"age": np.array([30, 41])}
    >>> input_digest("persons", ages, b"k") == input_digest("persons", {"age": [41, 30]}, b"k")
    True
    """
    arrays = [_canonical(column) for column in columns.values()]
    has_blocks = next(iter(columns), None) == "block_geocode"
    if has_blocks:
        arrays[0] = arrays[0].astype(np.int64, copy=False)
    n = len(arrays[0])
    order = None if _is_sorted(arrays) else np.lexsort(arrays[::-1])
    if has_blocks:
        geocode = arrays[0] if order is None else arrays[0][order]
        county = (geocode // 10**DIGITS_BELOW_COUNTY).astype(np.int32)
        starts = np.flatnonzero(np.append(True, county[1:] != county[:-1]))[:n]
    else:
        starts = np.arange(0, n, _ROWS_AT_ONCE)
    parts = (
        [array[start:end] if order is None else array[order[start:end]] for array in arrays]
        for start, end in zip(starts, np.append(starts[1:], n), strict=False)
    )
    types = [np.dtype("<i8") if array.dtype.kind in "iub" else array.dtype for array in arrays]
    return _digest(kind, tuple(columns), types, n, parts, key, of_parts=has_blocks)


def block_counts_digest(
    kind: str, columns: Sequence[str], counties: Iterable[Sequence[np.ndarray]], n: int, key: bytes
) -> InputDigest:
    """`input_digest` of a table of integers with blocks, given county by county.

    Each county is its rows' columns (n_rows,), in the order of all columns; the first has geocodes,
    and counties ascend by it. `n` is the number of all rows.
    """
    types = [np.dtype("<i8")] * len(columns)
    return _digest(kind, columns, types, n, counties, key, of_parts=True)


def _digest(
    kind: str,
    columns: Sequence[str],
    types: Sequence[np.dtype],
    n: int,
    parts: Iterable[Sequence[np.ndarray]],
    key: bytes,
    *,
    of_parts: bool,
) -> InputDigest:
    """Digest of rows in their order, given in parts, and of each part on request."""
    dtype = [(f"f{i}", each) for i, each in enumerate(types)]
    head = f"{'|'.join([kind, *columns])}|{np.dtype(dtype).descr}"
    whole, digests = _begun(head, n, key), []
    for arrays in parts:
        rows = np.empty(len(arrays[0]), dtype=dtype)
        for (name, _), array in zip(dtype, arrays, strict=True):
            rows[name] = array
        whole.update(rows.view(np.uint8).data)
        if of_parts:
            part = _begun(head, len(rows), key)
            part.update(rows.view(np.uint8).data)
            digests.append(part.hexdigest())
    return InputDigest(whole.hexdigest(), tuple(digests))


def unnamed_digest(kind: str, columns: Sequence[np.ndarray], count: np.ndarray, key: bytes) -> str:
    """Digest of a table of counts that does not depend on its columns' names or their order.

    Columns (n,) hold codes, and rows are distinct. The columns are ordered by the digests of their
    own totals by code; columns that agree in these keep their order. A column that another one
    determines, such as a region given with its province, is left out.

    >>> one, other = np.array(["a", "b"]), np.array(["x", "x"])
    >>> n = np.array([3, 4])
    >>> unnamed_digest("t", [one, other], n, b"k") == unnamed_digest("t", [other, one], n, b"k")
    True
    """
    import pandas as pd  # Needed only for inputs without a name.

    codes = [pd.factorize(np.asarray(column, dtype=object)) for column in columns]
    kept = [number for number in range(len(columns)) if not _is_determined(codes, number)]

    def by_itself(number: int) -> str:
        position, values = codes[number]
        totals = np.bincount(position, weights=count, minlength=len(values)).astype(np.int64)
        table = {"code": np.asarray(values, dtype=str), "count": totals}
        return input_digest(kind, table, key).whole

    ordered = sorted(kept, key=by_itself)
    rows = pd.DataFrame(
        {f"column {place}": np.asarray(columns[n], dtype=str) for place, n in enumerate(ordered)}
        | {"count": count}
    )
    return input_digest(kind, {name: rows[name].to_numpy() for name in rows}, key).whole


@while_unchanged(lambda path, key: path, at_most=64)
def file_digest(path: Path, key: bytes) -> str:
    """Keyed digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hmac.new, key, digestmod="sha256")).hexdigest()


def _is_determined(codes: Sequence[tuple[np.ndarray, np.ndarray]], number: int) -> bool:
    """Whether the codes of another, finer column determine the codes of one.

    If two columns determine each other, the first stays.
    """
    position, values = codes[number]
    for other, (finer, finer_values) in enumerate(codes):
        if other == number:
            continue
        n_pairs = np.unique(finer.astype(np.int64) * max(1, len(values)) + position).size
        if n_pairs == len(finer_values) and (len(finer_values) > len(values) or other < number):
            return True
    return False


def _canonical(column: np.ndarray) -> np.ndarray:
    """Integers unchanged, which become int64 in rows; strings as UTF-8."""
    column = np.asarray(column)
    if column.dtype.kind in "iub":
        return column
    if column.dtype.kind == "f":
        raise TypeError("a digest needs integers or strings, not floats")
    return np.char.encode(column.astype(str), "utf-8")


def _is_sorted(columns: Sequence[np.ndarray]) -> bool:
    """Whether the rows are in the order of the columns, the first of them first."""
    is_next = np.ones(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in reversed(columns):
        is_next = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & is_next)
    return bool(is_next.all())


def _begun(head: str, n_rows: int, key: bytes) -> hmac.HMAC:
    """The HMAC before its rows, strings padded to the longest of the whole table."""
    return hmac.new(key, f"{head}|{n_rows}|".encode(), hashlib.sha256)


STRONG_BITS, WEAK_BITS = 64.0, 32.0
"""Information of a multiset that recognises people by itself, and together with others:
some 2^35 pairs of digests are compared for two large tables."""

MOST = 1 << 12
"""Digests of a geolevel and a column that are kept."""

MOST_VALUES = 1 << 20
"""Distinct values of a column from which it is left out: it would not fit into memory."""

_MOST_OF_VALUES, _FEW_UNITS = 1 << 10, 16
"""Digests of values that are kept of a column, and geounits of a geolevel that has them."""
_ENTRIES_AT_ONCE = 1 << 22
_DIGEST_BYTES = 16

_Lanes = np.ndarray
"""Hashes of 128 bits as two of 64, shape `(n, 2)`, uint64."""

_LARGEST_KEY = 2**62
"""A number that two together are not larger than, where they are sorted as one."""


@dataclass(frozen=True, eq=False)
class RecordColumn:
    """A column of a table of people: how many records of each area have each of its raw values.

    counts : `(n_areas, n_cells)`, not negative.
    values : the distinct raw values, as `raw_value` spells them.
    value_of_cell : `(n_cells,)` positions in `values`, None where cells are values.
    """

    counts: sparse.csr_array
    values: Sequence[str]
    value_of_cell: np.ndarray | None = None

    def parts(self) -> Iterator[tuple[int, sparse.csr_array]]:
        """Counts by area and value of some consecutive areas, and the first of these."""
        indptr = self.counts.indptr.astype(np.int64)
        for first, last in cut_at(np.diff(indptr), _ENTRIES_AT_ONCE):
            entries = slice(indptr[first], indptr[last])
            cell, count = self.counts.indices[entries], self.counts.data[entries]
            value = cell if self.value_of_cell is None else self.value_of_cell[cell]
            starts = indptr[first : last + 1] - indptr[first]
            shape = (last - first, max(1, len(self.values)))
            part = sparse.csr_array((count.astype(np.int64), value, starts), shape=shape)
            part.sum_duplicates()
            part.eliminate_zeros()
            yield first, part


def raw_value(text: str | None) -> str:
    """Canonical spelling of a raw value, common to all readers: numbers without leading zeros.

    >>> raw_value("07"), raw_value("7.0"), raw_value(" b "), raw_value(None)
    ('7', '7', 'b', '')
    """
    text = without_point((text or "").strip())
    return (text.lstrip("0") or "0") if text.isascii() and text.isdigit() else text


def people_digests(
    columns: Iterable[RecordColumn], levels: Sequence[np.ndarray], key: bytes
) -> PeopleDigests:
    """Digests of people, under a key.

    `levels` are the geolevels above the areas from the root on, each the number `(n_areas,)` of
    every area's geounit; each geounit is within one geounit of the level above.
    """
    hashing, nested = _Hashing(key), dict[int, _Geolevels]()
    # Column by column: each holds its counts at every geolevel until its lists are made.
    lists: list[_List] = []
    for own in columns:
        n_areas = own.counts.shape[0]
        if n_areas not in nested:
            nested[n_areas] = _Geolevels(levels, n_areas)
        lists += _ColumnDigests(hashing, own, nested[n_areas]).lists()
    strong = {digest for one in lists for digest in one.digests(hashing, is_strong=True)}
    weak = {digest for one in lists for digest in one.digests(hashing, is_strong=False)} - strong
    n_filling = max(0, sum(one.length for one in lists) - len(strong) - len(weak))
    of_these = "".join(sorted(strong | weak)).encode()
    filling = _stretched(hashing.digest(b"filling", of_these), n_filling)
    return PeopleDigests(tuple(sorted(strong)), tuple(sorted(weak)), filling)


def _stretched(seed: str, n: int) -> tuple[str, ...]:
    """As many texts as digests, which follow from a seed."""
    size = 2 * _DIGEST_BYTES
    text = shake_256(seed.encode()).hexdigest(_DIGEST_BYTES * n)
    return tuple(text[start : start + size] for start in range(0, len(text), size))


class _Hashing:
    """The keyed hashes: of texts and bytes by BLAKE2b, of hashes and counts by mixing."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        words = blake2b(b"mixing", key=key, digest_size=64).digest()
        self._constants = np.frombuffer(words, dtype="<u8").reshape(4, 2).astype(np.uint64)

    def of_values(self, values: Sequence[str]) -> _Lanes:
        """Hashes of texts."""
        hashes = [
            blake2b(b"value|" + text.encode(), key=self._key, digest_size=16).digest()
            for text in values
        ]
        return np.frombuffer(b"".join(hashes), dtype="<u8").reshape(-1, 2).astype(np.uint64)

    def of_sums(self, sums: _Lanes) -> _Lanes:
        """Hashes of sums of hashes; their sums in turn identify the multiset of sums."""
        return _mixed(sums ^ self._constants[0], self._constants[1])

    def of_counts(self, counts: np.ndarray) -> _Lanes:
        """Hashes of counts."""
        lanes = counts.astype(np.uint64)[:, None] * (self._constants[2] | np.uint64(1))
        return _mixed(lanes, self._constants[3])

    def digest(self, kind: bytes, data: bytes) -> str:
        """A digest for use outside this module: one-way, and a function of kind and data alone."""
        return blake2b(kind + b"|" + data, key=self._key, digest_size=_DIGEST_BYTES).hexdigest()


def _mixed(lanes: _Lanes, constants: np.ndarray) -> _Lanes:
    """The finalizer of MurmurHash3, between additions of keyed constants."""
    lanes = lanes + constants
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        lanes = (lanes ^ (lanes >> np.uint64(33))) * np.uint64(factor)
    return (lanes ^ (lanes >> np.uint64(33))) + constants


@dataclass(frozen=True, eq=False)
class _List:
    """Sums `(n, 2)` of one kind, their information `(n,)` in bits, and how many digests it has."""

    kind: bytes
    sums: _Lanes
    bits: np.ndarray
    length: int

    def digests(self, hashing: _Hashing, *, is_strong: bool) -> Iterator[str]:
        """The digests of the strong sums that are kept, or of the weak ones."""
        enough = np.flatnonzero(self.bits >= WEAK_BITS)
        order = hashing.of_sums(self.sums[enough])[:, 0]
        kept = enough[np.argsort(order, kind="stable")[: self.length]]
        for row in kept[(self.bits[kept] >= STRONG_BITS) == is_strong]:
            yield hashing.digest(self.kind, self.sums[row].astype("<u8").tobytes())


@dataclass(frozen=True, eq=False)
class _Level:
    """A geolevel of one column: sums of its geounits' records, their bits, and counts by value.

    `counts` is None where there were too many to keep.
    """

    sums: _Lanes
    bits: np.ndarray
    counts: sparse.csr_array | None = None


class _Geolevels:
    """Geolevels from the root to the areas, without those that repeat the level above and would
    repeat its digests: the number `(n_areas,)` of every area's geounit, and how many there are.
    """

    def __init__(self, levels: Sequence[np.ndarray], n_areas: int) -> None:
        # The root is there whether it is a geolevel or not.
        self.numbers, self.n_units = [np.zeros(n_areas, dtype=np.int64)], [min(1, n_areas)]
        for number in levels:
            numbered = np.unique(number, return_inverse=True)[1].reshape(-1)
            n_units = int(numbered.max(initial=-1)) + 1
            if self.n_units[-1] < n_units < n_areas:
                self.numbers.append(numbered)
                self.n_units.append(n_units)
        if self.n_units[-1] < n_areas:
            self.numbers.append(np.arange(n_areas))
            self.n_units.append(n_areas)


class _ColumnDigests:
    """The lists of digests of one column."""

    def __init__(self, hashing: _Hashing, column: RecordColumn, nested: _Geolevels) -> None:
        self._hashing, self._numbers, self._n_units = hashing, nested.numbers, nested.n_units
        self._levels = self._summed(column)

    def _summed(self, column: RecordColumn) -> list[_Level]:
        """The geolevels from the root on; the counts of the areas are not held all at once."""
        hashes = self._hashing.of_values(column.values)
        if not len(hashes):
            return []
        above = self._numbers[-2] if len(self._numbers) > 1 else self._numbers[-1]
        n_above = int(above.max(initial=-1)) + 1
        parts, sums_above = [], sparse.csr_array((n_above, len(hashes)), dtype=np.int64)
        for first, counts in column.parts():
            parts.append(_level(counts, hashes))
            rows = above[first : first + counts.shape[0]]
            sums_above = sums_above + _regrouped(counts, rows, n_above)
        whole = parts[0] if len(parts) == 1 else None
        sums, bits = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("sums", "bits")
        )
        finest = _Level(sums, bits, None if whole is None else whole.counts)
        if len(self._numbers) == 1:
            return [finest]
        found, counts = [finest], sums_above
        for depth in range(len(self._numbers) - 2, -1, -1):
            if depth < len(self._numbers) - 2:
                counts = _regrouped(counts, self._parents(depth, depth + 1), self._n_units[depth])
            found.insert(0, _level(counts, hashes))
        return found

    def _parents(self, upper: int, lower: int) -> np.ndarray:
        """The geounit of the upper level of each one of the lower level."""
        parents = np.zeros(self._n_units[lower], dtype=np.int64)
        parents[self._numbers[lower]] = self._numbers[upper]
        return parents

    def lists(self) -> Iterator[_List]:
        """All lists of digests of the column."""
        for depth, level in enumerate(self._levels):
            length = min(MOST, len(level.bits))
            yield _List(b"records", level.sums, level.bits, length)
            for lower in range(depth + 1, len(self._levels)):
                yield self._of_areas(depth, lower)
        yield self._of_values()

    def _of_areas(self, upper: int, lower: int) -> _List:
        """Multisets of the contents of a lower level's geounits, by geounit of an upper level."""
        below, n_units = self._levels[lower], self._n_units[upper]
        rows = np.flatnonzero(below.bits > 0)  # Geounits with records.
        parents, hashes = self._parents(upper, lower)[rows], self._hashing.of_sums(below.sums[rows])
        sums = np.zeros((n_units, 2), dtype=np.uint64)
        np.add.at(sums, parents, hashes)
        n_below = np.bincount(parents, minlength=n_units)
        # Each has the bits of its contents; being without order costs at most log2(n) bits each.
        own = below.bits[rows] - np.log2(np.maximum(1, n_below))[parents]
        by_what_they_hold = np.bincount(parents, np.maximum(0, own), minlength=n_units)
        by_how_many_hold_it = _bits_of_repeats(parents, hashes[:, 0], n_units)
        bits = np.maximum(by_what_they_hold, by_how_many_hold_it)
        # With a single geounit below, the digest would repeat the one of that geounit.
        return _List(b"areas", sums, np.where(n_below > 1, bits, 0), min(MOST, n_units))

    def _of_values(self) -> _List:
        """The multisets of how many records have a value in the geounits of a lower level."""
        found: list[tuple[_Lanes, np.ndarray]] = []
        for lower in range(1, len(self._levels)):
            counts = self._levels[lower].counts
            if counts is None or not counts.nnz:
                continue
            entries = sparse.coo_array(counts)
            unit, value = (axis.astype(np.int64) for axis in entries.coords)
            hashes, n_values = self._hashing.of_counts(entries.data), counts.shape[1]
            for upper in range(lower):
                n_units = self._n_units[upper]
                if n_units > _FEW_UNITS:
                    continue
                group = self._parents(upper, lower)[unit] * n_values + value
                sums = np.zeros((n_units * n_values, 2), dtype=np.uint64)
                np.add.at(sums, group, hashes)
                bits = _bits_of_repeats(group, entries.data, len(sums))
                found.append((sums, bits))
        if not found:
            return _List(b"value", np.zeros((0, 2), np.uint64), np.zeros(0), _MOST_OF_VALUES)
        sums, bits = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return _List(b"value", sums, bits, _MOST_OF_VALUES)


def _level(counts: sparse.csr_array, hashes: _Lanes) -> _Level:
    """Sums and bits of the rows of counts by geounit and value."""
    as_words = _with_data(counts, counts.data.astype(np.uint64))
    sums = np.stack([as_words @ np.ascontiguousarray(hashes[:, lane]) for lane in (0, 1)], axis=1)
    bits = _with_data(counts, _bits(counts.data)) @ np.ones(counts.shape[1])
    return _Level(sums, bits, counts)


def _with_data(matrix: sparse.csr_array, data: np.ndarray) -> sparse.csr_array:
    """A matrix with other values in the same places."""
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _regrouped(counts: sparse.csr_array, group: np.ndarray, n_groups: int) -> sparse.csr_array:
    """Rows added up by group `(n_rows,)`."""
    n_rows = len(group)
    entries = np.ones(n_rows, counts.dtype), (group, np.arange(n_rows))
    summed = sparse.csr_array(entries, shape=(n_groups, n_rows)) @ counts
    summed.sort_indices()
    return summed


def _bits(counts: np.ndarray) -> np.ndarray:
    """Lower bound of the bits that counts of at least 1 carry."""
    return 1 + np.log2(counts) / 2


def _bits_of_repeats(group: np.ndarray, what: np.ndarray, n_groups: int) -> np.ndarray:
    """Bits `(n_groups,)` that a multiset carries by how often each of its elements occurs in it.

    The elements are `what`, whole numbers from 0 on.
    """
    if not len(group):
        return np.zeros(n_groups)
    if int(what.max()) >= _LARGEST_KEY // n_groups:
        import pandas as pd  # Settings and budgets are read without it.

        what = pd.factorize(what)[0]
    n_kinds = int(what.max()) + 1
    # One number for each pair is sorted in a third of the time of two.
    keys = np.sort(group * n_kinds + what.astype(np.int64))
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    times = np.diff(starts, append=len(keys))
    return np.bincount(keys[starts] // n_kinds, _bits(times), minlength=n_groups)
