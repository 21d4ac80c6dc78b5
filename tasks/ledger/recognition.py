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

    def recognised_by(self, by: PeopleDigests) -> InputDigest:
        """The digest of an input that the digests of its raw columns recognise too."""
        parts, weak = (*self.parts, *by.strong), (*self.weak, *by.weak)
        return InputDigest(self.whole, parts, weak, (*self.filling, *by.filling))


def input_digest(kind: str, columns: Mapping[str, np.ndarray], key: bytes) -> InputDigest:
    """Digest of the multiset of rows of a table, and of each county's if it has blocks.

    `kind` ("persons", "trips", ...) and the column names take part. Columns (n,) hold integers or
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
    """`input_digest` of a table of `n` rows that are given in parts.

    Each part is its rows' columns (n_rows,), in the order of all columns; where the first has the
    geocodes of blocks, the parts are counties, ascending. `types` are by default of integers.
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
    """Integers unchanged, which become int64 in rows; strings as UTF-8."""
    column = np.asarray(column)
    if column.dtype.kind == "f":
        raise TypeError("a digest needs integers or strings, not floats")
    is_integer = column.dtype.kind in "iub"
    return column if is_integer else np.char.encode(column.astype(str), "utf-8")


def unnamed_digest(kind: str, columns: Sequence[np.ndarray], count: np.ndarray, key: bytes) -> str:
    """Digest of a table of counts that does not depend on its columns' names or their order.

    Columns (n,) hold codes, and rows are distinct. The columns are ordered by the digests of their
    own totals by code; columns that agree in these keep their order. A column that another one
    determines, such as a region given with its province, is left out; of two that determine each
    other, the first stays.

    >>> one, other = np.array(["a", "b"]), np.array(["x", "x"])
    >>> n = np.array([3, 4])
    >>> unnamed_digest("t", [one, other], n, b"k") == unnamed_digest("t", [other, one], n, b"k")
    True
    """
    import pandas as pd  # Needed only for inputs without a name.

    codes = pd.DataFrame({n: np.asarray(own, dtype=str) for n, own in enumerate(columns)})
    n_codes = codes.nunique()

    def is_determined(own: int) -> bool:
        finer = [n for n in codes if (n_codes[n], own) > (n_codes[own], n)]
        return any(len(codes[[own, n]].drop_duplicates()) == n_codes[n] for n in finer)

    def by_itself(own: int) -> str:
        totals = pd.Series(count, dtype=np.int64).groupby(codes[own]).sum()
        table = {"code": totals.index.to_numpy(str), "count": totals.to_numpy()}
        return input_digest(kind, table, key).whole

    ordered = sorted((own for own in codes if not is_determined(own)), key=by_itself)
    rows = {f"column {place}": codes[own].to_numpy(str) for place, own in enumerate(ordered)}
    return input_digest(kind, rows | {"count": count}, key).whole


@cache_unchanged(lambda path, key: path, at_most=64)
def file_digest(path: Path, key: bytes) -> str:
    """Keyed digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hmac.new, key, digestmod="sha256")).hexdigest()


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
) -> PeopleDigests:
    """Digests of people, under a key.

    `levels` are the geolevels above the areas from the root on, each the number `(n_areas,)` of
    every area's geounit; each geounit is within one geounit of the level above.
    """
    hashing, strong, weak, n_digests = _KeyedHashes(key), set[str](), set[str](), 0
    numbers = _numbers_of_levels(levels, columns[0].counts.shape[0] if columns else 0)
    # Column by column: each holds its counts at every geolevel until its lists are made.
    for column in columns:
        for kind, sums, bits, length in _lists(_geolevels(column, numbers, hashing), hashing):
            n_digests += length
            enough = np.flatnonzero(bits >= WEAK_BITS)
            order = hashing.of_sums(sums[enough])[:, 0]
            for row in enough[np.argsort(order, kind="stable")[:length]]:
                found = strong if bits[row] >= STRONG_BITS else weak
                found.add(hashing.digest(kind, sums[row].astype("<u8").tobytes()))
    weak -= strong
    seed = hashing.digest(b"filling", "".join(sorted(strong | weak)).encode())
    n_filling = max(0, n_digests - len(strong) - len(weak))
    text, size = shake_256(seed.encode()).hexdigest(_DIGEST_BYTES * n_filling), 2 * _DIGEST_BYTES
    filling = tuple(text[start : start + size] for start in range(0, len(text), size))
    return PeopleDigests(tuple(sorted(strong)), tuple(sorted(weak)), filling)


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
        """Hashes of sums of hashes; their sums in turn identify the multiset of sums."""
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

    number : its geounit of every area, `(n_areas,)`.
    sums, bits : of the hashes of its geounits' records, `(n_units, 2)`, and their information.
    counts : records by geounit and value, None where they were too many to keep.
    """

    number: np.ndarray
    sums: _Lanes
    bits: np.ndarray
    counts: sparse.csr_array | None


def _numbers_of_levels(levels: Sequence[np.ndarray], n_areas: int) -> list[np.ndarray]:
    """Every area's geounit from the root to the areas, without levels that repeat the level above
    and would repeat its digests.
    """
    # The root is there whether it is a geolevel or not.
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
    """The geounit of an upper level of each one of a lower level, both by area."""
    parents = np.zeros(_length(lower), dtype=np.int64)
    parents[lower] = upper
    return parents


def _geolevels(
    column: RecordColumn, numbers: Sequence[np.ndarray], hashing: _KeyedHashes
) -> list[_Geolevel]:
    """The geolevels from the root on; the counts of the areas are not held all at once."""
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
    """Sums and bits of the rows of counts by geounit and value."""
    words, bits = (
        sparse.csr_array((data, counts.indices, counts.indptr), counts.shape)
        for data in (counts.data.astype(np.uint64), _bits(counts.data))
    )
    return words @ hashes, bits @ np.ones(counts.shape[1])


def _regroup_rows(counts: sparse.csr_array, group: np.ndarray, n_groups: int) -> sparse.csr_array:
    """Rows added up by group `(n_rows,)`."""
    n_rows = len(group)
    entries = np.ones(n_rows, counts.dtype), (group, np.arange(n_rows))
    summed = sparse.csr_array(entries, shape=(n_groups, n_rows)) @ counts
    summed.sort_indices()
    return summed


_List = tuple[bytes, _Lanes, np.ndarray, int]
"""Sums `(n, 2)` of a kind, their information `(n,)` in bits, and how many digests it has."""


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
    # Each has the bits of its contents; being without order costs at most log2(n) bits each.
    own = lower.bits[rows] - np.log2(np.maximum(1, n_below))[parents]
    by_contents = np.bincount(parents, np.maximum(0, own), minlength=n_units)
    bits = np.maximum(by_contents, _bits_of_repeats(parents, hashes[:, 0], n_units))
    # With a single geounit below, the digest would repeat the one of that geounit.
    return b"areas", sums, np.where(n_below > 1, bits, 0), min(MOST, n_units)


def _list_of_values(levels: Sequence[_Geolevel], hashing: _KeyedHashes) -> _List:
    """The multisets of how many records have a value in the geounits of a lower level."""
    found = [(np.zeros((0, 2), np.uint64), np.zeros(0))]
    for depth, lower in enumerate(levels):
        if lower.counts is None:
            continue
        entries = sparse.coo_array(lower.counts)
        unit, value = (axis.astype(np.int64) for axis in entries.coords)
        hashes, n_values = hashing.of_counts(entries.data), entries.shape[1]
        for upper in [own for own in levels[:depth] if len(own.bits) <= _FEW_UNITS]:
            group = _parents(upper.number, lower.number)[unit] * n_values + value
            sums = np.zeros((len(upper.bits) * n_values, 2), dtype=np.uint64)
            np.add.at(sums, group, hashes)
            found.append((sums, _bits_of_repeats(group, entries.data, len(sums))))
    sums, bits = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return b"value", sums, bits, _MOST_OF_VALUES


def _bits(counts: np.ndarray) -> np.ndarray:
    """Lower bound of the bits that counts of at least 1 carry."""
    return 1 + np.log2(counts) / 2


def _bits_of_repeats(group: np.ndarray, what: np.ndarray, n_groups: int) -> np.ndarray:
    """Bits `(n_groups,)` that a multiset carries by how often each of its elements `what` occurs
    in it.
    """
    import pandas as pd  # Settings and budgets are read without it.

    # One number for each pair is sorted in a third of the time of two.
    kinds, found = pd.factorize(what)
    keys, times = np.unique(group * max(1, len(found)) + kinds, return_counts=True)
    return np.bincount(keys // max(1, len(found)), _bits(times), minlength=n_groups)
