"""The base of every model of settings: values have the type that a key asks for, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_EXACT = ("bool", "int", "float", "str")
"""Kinds of values that nothing else is turned into; a whole number may stand for a float."""

_NO_SCHEMA = ("default", "metadata", "serialization")
"""Entries of a schema that hold something else than schemas of values."""


def _as_tuple(value: Any) -> Any:
    """A list as a tuple; sets, whose order is nobody's, and other values as they are."""
    return tuple(value) if isinstance(value, list) else value


def _as_no_number(value: Any) -> Any:
    """A value that equals a number but is none, such as true or 1.0, as a text."""
    return value if isinstance(value, int | str) and not isinstance(value, bool) else repr(value)


def _prepare(node: dict[str, Any], change: Callable[[Any], Any]) -> None:
    """Change a schema of values so that they are changed before it sees them."""
    inner = dict(node)
    node.clear()
    node.update(core_schema.no_info_before_validator_function(change, core_schema.any_schema()))
    node["schema"] = inner


def _make_exact(node: Any) -> None:
    """Make every schema below a node refuse values of other types."""
    if isinstance(node, dict):
        kind = node.get("type")
        if kind in _EXACT:
            node["strict"] = True
        elif kind == "tuple" and not node.get("strict"):
            node["strict"] = True
            _prepare(node, _as_tuple)
        elif kind == "literal" and any(type(value) is int for value in node["expected"]):
            _prepare(node, _as_no_number)
            return
        elif kind == "function-before" and node["function"]["function"] is _as_no_number:
            return
        for key, value in node.items():
            if key not in _NO_SCHEMA:
                _make_exact(value)
    elif isinstance(node, list | tuple):
        for value in node:
            _make_exact(value)


class ExactTypes(BaseModel):
    """A model that turns no value into one of another type.

    "off", 0 and "f" are no booleans, true, "3" and 3.0 no whole numbers, at any depth of a field's
    type; lists stand for tuples, since TOML and JSON have no others.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        """The schema of the fields with exact types."""
        schema = handler(source)
        _make_exact(schema)
        return schema
