"""Keyed digests that recognise the same people again in any file.

The digest of an input is an HMAC-SHA256, under the ledger's key, of the sorted rows of a canonical
table, so it does not depend on the order of records, on file formats, or on columns that only one
product reads. A plain hash would let anyone confirm a guess of the records; without the key a
digest reveals only whether it equals another one.

This digest names the input. For persons, it covers the count of each combination of the attributes
declared by their census, by block. Where the first column is a block geocode there is also a digest
for each county, by which ledgers of older versions know the counties of a state. In tables of
another form people are recognised by digests of each geounit's contents, column by column.

Each column of a table of people becomes counts of raw values by area. These digests depend on
nothing else: no name of a column, a universe, an area or a file, no recode, no order. Each value
has a keyed hash, and a geounit the sum of its records' hashes, which is a multiset hash (Clarke and
others, Incremental multiset hash functions, 2003). Keyed BLAKE2b makes digests of the sums, of
three kinds:

    records   of a geounit: the values of its records
    areas     of a geounit and a finer geolevel: the multiset of the contents of its geounits there
    value     of a large geounit, one value and a finer geolevel: the multiset of the numbers of its
              records with the value in its geounits there

The first recognises people whose areas are grouped in another way, and some of the areas of a
table; the second recognises them by columns of few values too; the third recognises rows selected
by a column's value. One common column of two tables is enough.

Chance agreement must not recognise anyone: a geounit without people, or with one ordinary person,
has no digest. The information of a multiset is bounded from below, in bits, as if counts were
independent and Poisson: each count n of a value carries at least 1 + log2(n) / 2, which is less
than the collision entropy of a Poisson count of mean n. One digest of `STRONG_BITS` is enough to
recognise people; of digests between `WEAK_BITS` and that, `ENOUGH_WEAK` are needed. Each list has
at most `MOST` digests, the ones with the smallest keyed hashes, so that two tables tend to keep the
same digests of their common people. Lists are padded to a length that follows from public
geography, so that the number of digests reveals nothing about the people.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b, shake_256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ..runs.files import cache_unchanged
from ..tables.columns import cut_into_runs, without_point

DIGITS_BELOW_COUNTY = 11
_BLOCKS = "block_geocode"

_ROWS_AT_ONCE = 1 << 20
"""Rows laid out in one step where there are no counties to split by."""

INPUT_DIGESTS = "input_digests.json"
"""Name of the file with the digests of a run's input, in its confidential folder."""

ENOUGH_WEAK = 4
"""Number of weak digests that recognise people together."""


ColumnDigests = tuple[frozenset[str], frozenset[str], int]
"""The strong and the weak digests of a column, and the most that it can have."""


@dataclass(frozen=True)
class InputDigest:
    """Digest of an input, and digests that recognise its people in another table.

    Each of `parts` recognises people by itself: digests by county where the input has blocks, and
    strong digests. Several `weak` ones are needed, and `filling` is padding that recognises no
    one. Inputs recorded by earlier versions may lack some of these.
    """

    whole: str
    parts: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()

    def recognised_by(self, columns: Sequence[ColumnDigests], key: bytes) -> InputDigest:
        """This digest, extended by the digests of all of the input's raw columns under a key, with
        padding that makes their number public."""
        strong = frozenset[str]().union(*(own for own, _, _ in columns))
        weak = frozenset[str]().union(*(own for _, own, _ in columns)) - strong
        hashing, n_digests = _KeyedHashes(key), sum(n for *_, n in columns)
        seed = hashing.digest(b"filling", "".join(sorted(strong | weak)).encode())
        n_filling = max(0, n_digests - len(strong) - len(weak))
        padding = shake_256(seed.encode()).digest(_DIGEST_BYTES * n_filling)
        starts = range(0, len(padding), _DIGEST_BYTES)
        filling = (padding[start : start + _DIGEST_BYTES].hex() for start in starts)
        parts, weak_ones = (*self.parts, *sorted(strong)), (*self.weak, *sorted(weak))
        return InputDigest(self.whole, parts, weak_ones, (*self.filling, *filling))


def input_digest(kind: str, columns: Mapping[str, np.ndarray], key: bytes) -> InputDigest:
    """Digest of the multiset of rows of a table, and of each county's rows if it has blocks.

    It covers `kind` ("persons", "trips", ...) and the column names. Columns (n,) hold integers or
    strings; a first column named `block_geocode` may hold either.

    >>> ages = {"age": np.array([30, 41])}
    >>> input_digest("persons", ages, b"k") == input_digest("persons", {"age": [41, 30]}, b"k")
    True
    """
    arrays = [_canonical(column) for column in columns.values()]
    names = tuple(columns)
    if names[0] == _BLOCKS:
        arrays[0] = arrays[0].astype(np.int64)
    order = np.lexsort(arrays[::-1])
    if names[0] == _BLOCKS:
        cuts = np.flatnonzero(np.diff(arrays[0][order] // 10**DIGITS_BELOW_COUNTY)) + 1
    else:
        cuts = np.arange(_ROWS_AT_ONCE, len(order), _ROWS_AT_ONCE)
    parts = ([array[rows] for array in arrays] for rows in np.split(order, cuts))
    types = [array.dtype if array.dtype.kind == "S" else np.dtype("<i8") for array in arrays]
    return digest_of_parts(kind, names, parts, len(order), key, types)


def digest_of_parts(
    kind: str,
    columns: Sequence[str],
    parts: Iterable[Sequence[np.ndarray]],
    n: int,
    key: bytes,
    types: Sequence[np.dtype] = (),
) -> InputDigest:
    """`input_digest` of a table of `n` rows, given in parts.

    A part lists the columns (n_rows,) of its rows. Where the first column has block geocodes, parts
    are counties, ascending. `types` are the columns' types, int64 by default.
    """
    types = types or [np.dtype("<i8")] * len(columns)
    dtype = np.dtype([(f"f{i}", own) for i, own in enumerate(types)])
    head = f"{'|'.join([kind, *columns])}|{dtype.descr}|"
    whole, counties = hmac.new(key, f"{head}{n}|".encode(), hashlib.sha256), []
    for arrays in parts:
        rows = np.rec.fromarrays(arrays, dtype=dtype).tobytes()
        whole.update(rows)
        if columns[0] == _BLOCKS and rows:
            county = f"{head}{len(arrays[0])}|".encode() + rows
            counties.append(hmac.digest(key, county, "sha256").hex())
    return InputDigest(whole.hexdigest(), tuple(counties))


def _canonical(column: np.ndarray) -> np.ndarray:
    """Integers unchanged (rows hold them as int64), strings as UTF-8."""
    column = np.asarray(column)
    if column.dtype.kind == "f":
        raise TypeError("a digest needs integers or strings, not floats")
    is_integer = column.dtype.kind in "iub"
    return column if is_integer else np.char.encode(column.astype(str), "utf-8")


def unnamed_digest(kind: str, columns: Sequence[np.ndarray], count: np.ndarray, key: bytes) -> str:
    """Digest of a table of counts that does not depend on its columns' names or their order.

    Columns (n,) hold codes, and rows are distinct. Each column has a digest of its totals by code,
    which orders the columns; columns of equal digests keep their given order. A column that another
    one determines, such as the region of a province, is left out; of two that determine each other,
    the first stays.

    >>> one, other = np.array(["a", "b"]), np.array(["x", "x"])
    >>> n = np.array([3, 4])
    >>> unnamed_digest("t", [one, other], n, b"k") == unnamed_digest("t", [other, one], n, b"k")
    True
    """
    import pandas as pd  # Needed only where columns have no names.

    codes = pd.DataFrame({n: np.asarray(own, dtype=str) for n, own in enumerate(columns)})
    n_codes = codes.nunique()

    def is_determined(own: int) -> bool:
        finer = [n for n in codes if (n_codes[n], own) > (n_codes[own], n)]
        return any(len(codes[[own, n]].drop_duplicates()) == n_codes[n] for n in finer)

    def digest_of_totals(own: int) -> str:
        totals = pd.Series(count, dtype=np.int64).groupby(codes[own]).sum()
        table = {"code": totals.index.to_numpy(str), "count": totals.to_numpy()}
        return input_digest(kind, table, key).whole

    ordered = sorted((own for own in codes if not is_determined(own)), key=digest_of_totals)
    rows = {f"column {place}": codes[own].to_numpy(str) for place, own in enumerate(ordered)}
    return input_digest(kind, rows | {"count": count}, key).whole


@cache_unchanged(lambda path, key: path, at_most=64)
def file_digest(path: Path, key: bytes) -> str:
    """Keyed digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hmac.new, key, digestmod="sha256")).hexdigest()


STRONG_BITS, WEAK_BITS = 64.0, 32.0
"""Least information of a strong and of a weak digest. For two large tables some 2^35 pairs of
digests are compared."""

MOST = 1 << 12
"""Largest number of digests of one list."""

MOST_VALUES = 1 << 20
"""Most distinct values of a column; one with more is left out, as it would not fit into memory."""

_MOST_OF_VALUES, _FEW_UNITS = 1 << 10, 16
"""Largest number of a column's `value` digests, and of geounits of a geolevel that has them."""
_ENTRIES_AT_ONCE = 1 << 22
_DIGEST_BYTES = 16

_Lanes = np.ndarray
"""Hashes of 128 bits as two of 64, shape `(n, 2)`, uint64."""


@dataclass(frozen=True, eq=False)
class RecordColumn:
    """A column of a table of people: how many records of each area have each of its raw values.

    counts : `(n_areas, n_values)`, not negative.
    values : the distinct raw values, as `raw_value` spells them.
    """

    counts: sparse.csr_array
    values: Sequence[str]


def raw_value(text: str | None) -> str:
    """Canonical spelling of a raw value, common to all readers: numbers without leading zeros.

    >>> raw_value("07"), raw_value("7.0"), raw_value(" b "), raw_value(None)
    ('7', '7', 'b', '')
    """
    text = without_point((text or "").strip())
    return (text.lstrip("0") or "0") if text.isascii() and text.isdigit() else text


def people_digests(
    columns: Sequence[RecordColumn], levels: Sequence[np.ndarray], key: bytes
) -> list[ColumnDigests]:
    """Digests of people, by column, under a key.

    `levels` are the geolevels above the areas, root first: for every area the number of its
    geounit, `(n_areas,)`. Each geounit is within one geounit of the level above.
    """
    numbers = numbers_of_levels(levels, columns[0].counts.shape[0] if columns else 0)
    return [column_digests(column, numbers, key) for column in columns]


def column_digests(
    column: RecordColumn, numbers: Sequence[np.ndarray], key: bytes
) -> ColumnDigests:
    """Digests of one column of people; `numbers` as `numbers_of_levels` gives them."""
    hashing, strong, weak, n_digests = _KeyedHashes(key), set[str](), set[str](), 0
    for kind, sums, bits, length in _lists(_geolevels(column, numbers, hashing), hashing):
        n_digests += length
        enough = np.flatnonzero(bits >= WEAK_BITS)
        order = hashing.of_sums(sums[enough])[:, 0]
        for row in enough[np.argsort(order, kind="stable")[:length]]:
            found = strong if bits[row] >= STRONG_BITS else weak
            found.add(hashing.digest(kind, sums[row].astype("<u8").tobytes()))
    return frozenset(strong), frozenset(weak), n_digests


class _KeyedHashes:
    """The keyed hashes: of texts and bytes by BLAKE2b, of hashes and counts by mixing."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        words = blake2b(b"mixing", key=key, digest_size=64).digest()
        self._constants = np.frombuffer(words, dtype="<u8").reshape(4, 2).astype(np.uint64)

    def of_values(self, values: Sequence[str]) -> _Lanes:
        """Hashes of texts."""
        texts = (b"value|" + value.encode() for value in values)
        hashes = b"".join(blake2b(own, key=self._key, digest_size=16).digest() for own in texts)
        return np.frombuffer(hashes, dtype="<u8").reshape(-1, 2).astype(np.uint64)

    def of_sums(self, sums: _Lanes) -> _Lanes:
        """Hashes of sums of hashes; adding these up gives a hash of the multiset of sums."""
        return _finalise(sums ^ self._constants[0], self._constants[1])

    def of_counts(self, counts: np.ndarray) -> _Lanes:
        """Hashes of counts."""
        lanes = counts.astype(np.uint64)[:, None] * (self._constants[2] | np.uint64(1))
        return _finalise(lanes, self._constants[3])

    def digest(self, kind: bytes, data: bytes) -> str:
        """A digest for use outside this module: one-way, and a function of kind and data alone."""
        return blake2b(kind + b"|" + data, key=self._key, digest_size=_DIGEST_BYTES).hexdigest()


def _finalise(lanes: _Lanes, constants: np.ndarray) -> _Lanes:
    """The finalizer of MurmurHash3, between additions of keyed constants."""
    lanes = lanes + constants
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        lanes = (lanes ^ (lanes >> np.uint64(33))) * np.uint64(factor)
    return (lanes ^ (lanes >> np.uint64(33))) + constants


class _Geolevel(NamedTuple):
    """A geolevel of one column.

    number : number of every area's geounit, `(n_areas,)`.
    sums : sums of the hashes of each geounit's records, `(n_units, 2)`.
    bits : information of each geounit's records, `(n_units,)`.
    counts : records by geounit and value, None if they were too many to keep.
    """

    number: np.ndarray
    sums: _Lanes
    bits: np.ndarray
    counts: sparse.csr_array | None


def numbers_of_levels(levels: Sequence[np.ndarray], n_areas: int) -> list[np.ndarray]:
    """The number of every area's geounit at each level, from the root to the areas.

    A level with as many geounits as the level above would repeat its digests, and is left out.
    """
    # The root is included even if it is no geolevel.
    found, n_above = [np.zeros(n_areas, dtype=np.int64)], min(1, n_areas)
    for level in (*levels, np.arange(n_areas)):
        number = np.unique(level, return_inverse=True)[1].reshape(-1)
        n_units = _length(number)
        if n_units > n_above:
            found.append(number if n_units < n_areas else np.arange(n_areas))
            n_above = n_units
    return found


def _length(number: np.ndarray) -> int:
    """How many geounits are numbered."""
    return int(number.max(initial=-1)) + 1


def _parents(upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Upper geounit of each lower geounit, from the numbers of both by area."""
    parents = np.zeros(_length(lower), dtype=np.int64)
    parents[lower] = upper
    return parents


def _geolevels(
    column: RecordColumn, numbers: Sequence[np.ndarray], hashing: _KeyedHashes
) -> list[_Geolevel]:
    """The geolevels, root first; counts by area are processed in parts."""
    hashes = hashing.of_values(column.values)
    if not len(hashes):
        return []
    lower, parts = numbers[max(0, len(numbers) - 2)], []
    counts = sparse.csr_array((_length(lower), len(hashes)), dtype=np.int64)
    for first, last in cut_into_runs(np.diff(column.counts.indptr), _ENTRIES_AT_ONCE):
        part = column.counts[first:last].astype(np.int64, copy=False)
        part.sum_duplicates()
        part.eliminate_zeros()
        parts.append((*_contents(part, hashes), part))
        counts = counts + _regroup_rows(part, lower[first:last], counts.shape[0])
    sums, bits, by_area = zip(*parts, strict=True)
    kept = by_area[0] if len(parts) == 1 else None
    found = [_Geolevel(numbers[-1], np.concatenate(sums), np.concatenate(bits), kept)]
    for number in reversed(numbers[:-1]):
        counts = _regroup_rows(counts, _parents(number, lower), _length(number))
        found.insert(0, _Geolevel(number, *_contents(counts, hashes), counts))
        lower = number
    return found


def _contents(counts: sparse.csr_array, hashes: _Lanes) -> tuple[_Lanes, np.ndarray]:
    """Sums of hashes and bits of each geounit, from counts by geounit and value."""
    words, bits = (
        sparse.csr_array((data, counts.indices, counts.indptr), counts.shape)
        for data in (counts.data.astype(np.uint64), _bits(counts.data))
    )
    return words @ hashes, bits @ np.ones(counts.shape[1])


def _regroup_rows(counts: sparse.csr_array, group: np.ndarray, n_groups: int) -> sparse.csr_array:
    """Sums of rows by group `(n_rows,)`."""
    n_rows = len(group)
    entries = np.ones(n_rows, counts.dtype), (group, np.arange(n_rows))
    summed = sparse.csr_array(entries, shape=(n_groups, n_rows)) @ counts
    summed.sort_indices()
    return summed


_List = tuple[bytes, _Lanes, np.ndarray, int]
"""A kind, its sums `(n, 2)`, their information `(n,)` in bits, and the length of the list."""


def _lists(levels: Sequence[_Geolevel], hashing: _KeyedHashes) -> Iterator[_List]:
    """All lists of digests of a column."""
    for depth, upper in enumerate(levels):
        yield b"records", upper.sums, upper.bits, min(MOST, len(upper.bits))
        for lower in levels[depth + 1 :]:
            yield _list_of_areas(upper, lower, hashing)
    yield _list_of_values(levels, hashing)


def _list_of_areas(upper: _Geolevel, lower: _Geolevel, hashing: _KeyedHashes) -> _List:
    """Multisets of the contents of a lower level's geounits, by geounit of an upper level."""
    rows, n_units = np.flatnonzero(lower.bits > 0), len(upper.bits)  # Geounits with records.
    parents = _parents(upper.number, lower.number)[rows]
    hashes = hashing.of_sums(lower.sums[rows])
    sums = np.zeros((n_units, 2), dtype=np.uint64)
    np.add.at(sums, parents, hashes)
    n_below = np.bincount(parents, minlength=n_units)
    # Each geounit below adds its bits, less log2(n) of n: there are at most n^n orders.
    own = lower.bits[rows] - np.log2(np.maximum(1, n_below))[parents]
    by_contents = np.bincount(parents, np.maximum(0, own), minlength=n_units)
    bits = np.maximum(by_contents, _bits_of_repeats(parents, hashes[:, 0], n_units))
    # With a single geounit below, the digest would repeat the digest of that geounit.
    return b"areas", sums, np.where(n_below > 1, bits, 0), min(MOST, n_units)


def _list_of_values(levels: Sequence[_Geolevel], hashing: _KeyedHashes) -> _List:
    """Multisets of the counts of one value in a lower level's geounits, by upper geounit."""
    found = [(np.zeros((0, 2), np.uint64), np.zeros(0))]
    for depth, lower in enumerate(levels):
        if lower.counts is None:
            continue
        entries = sparse.coo_array(lower.counts)
        unit, value = (axis.astype(np.int64) for axis in entries.coords)
        distinct, place = np.unique(entries.data, return_inverse=True)
        hashes, n_values = hashing.of_counts(distinct)[place], entries.shape[1]
        for upper in [own for own in levels[:depth] if len(own.bits) <= _FEW_UNITS]:
            group = _parents(upper.number, lower.number)[unit] * n_values + value
            sums = np.zeros((len(upper.bits) * n_values, 2), dtype=np.uint64)
            np.add.at(sums, group, hashes)
            found.append((sums, _bits_of_repeats(group, entries.data, len(sums))))
    sums, bits = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return b"value", sums, bits, _MOST_OF_VALUES


def _bits(counts: np.ndarray) -> np.ndarray:
    """Information in bits of counts of at least 1; see the module."""
    return 1 + np.log2(counts) / 2


def _bits_of_repeats(group: np.ndarray, element: np.ndarray, n_groups: int) -> np.ndarray:
    """Information in bits, `(n_groups,)`, of each group's multiset of elements `(n,)`, from the
    number of times that each element occurs.
    """
    import pandas as pd  # Settings and budgets are read without it.

    # Sorting one number for each pair takes a third of the time of sorting pairs.
    codes, distinct = pd.factorize(element)
    keys, times = np.unique(group * max(1, len(distinct)) + codes, return_counts=True)
    return np.bincount(keys // max(1, len(distinct)), _bits(times), minlength=n_groups)
