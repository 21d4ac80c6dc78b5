"""Columns of a file as they were read, with what its format says of blanks and numbers applied."""

from __future__ import annotations

from collections.abc import Mapping
from unicodedata import normalize

import pyarrow as pa
import pyarrow.compute as pc

from .columns import canonical_text
from .formats import TextFormat
from .layouts import Field


def cleaned(
    text_format: TextFormat, batch: Mapping[str, pa.Array], separator: str | None = None
) -> dict[str, pa.Array]:
    """Columns with blanks for what is missing, points for decimal commas, and texts in Unicode's
    normal form C, so that letters agree however they were composed; `separator` is what stands
    between the fields of a row, if anything does.
    """
    decimal = text_format.decimal_beside(separator)
    return {name: _cleaned(text_format, name, array, decimal) for name, array in batch.items()}


def _cleaned(text_format: TextFormat, name: str, array: pa.Array, decimal: str) -> pa.Array:
    is_number = decimal == "," and name in text_format.numbers
    digits = text_format.digits.get(name, 0)
    if pa.types.is_dictionary(array.type):
        return _cleaned_codes(text_format, array, is_number, digits)
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if is_number or digits or (text_format.is_missing is not None and not is_text):
        coded = array.dictionary_encode()
        return _cleaned_codes(text_format, coded, is_number, digits).dictionary_decode()
    if not is_text:
        return array
    if not _is_plain(array):
        array = pc.utf8_normalize(array, form="NFC")
    if not text_format.missing:
        return array
    missing = pa.array(sorted(text_format.missing), array.type)
    is_missing = pc.is_in(pc.utf8_trim_whitespace(array), value_set=missing)
    return pc.if_else(is_missing, None, array)


def _cleaned_codes(
    text_format: TextFormat, array: pa.DictionaryArray, is_number: bool, digits: int
) -> pa.DictionaryArray:
    """A column of codes, each distinct one of which is looked at once."""
    has_changes = text_format.is_missing is not None or is_number or digits
    if not has_changes and _is_plain(array.dictionary):
        return array
    values = [
        text_format.value(canonical_text(value, Field("", "text")), is_number, digits)
        for value in array.dictionary.to_pylist()
    ]
    return _recoded(array, values)


def _is_plain(values: pa.Array) -> bool:
    """Whether values are no texts, or in letters that have one form alone."""
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    return not is_text or pc.all(pc.string_is_ascii(values)).as_py() in (True, None)


def _recoded(array: pa.DictionaryArray, values: list[str | None]) -> pa.DictionaryArray:
    """A column with other texts for its distinct values; null where there is none."""
    texts = [normalize("NFC", value) for value in values if value is not None]
    position = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    number_of = [None if v is None else position[normalize("NFC", v)] for v in values]
    indices = pa.array(number_of, pa.int32()).take(array.indices)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(position), pa.string()))
