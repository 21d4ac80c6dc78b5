"""The forms with which the Prefect UI starts runs: settings as typed fields beside the file.

A field bears the key of the setting that it stands for. Prefect's server checks what is typed
against the form's schema before it creates a run; the settings themselves are validated when the
run begins. What is left empty is as the settings file, its preset or the default has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import core_schema

from ..tasks.products.presets import PRESETS
from ..tasks.runs.exact_types import ExactTypes
from ..tasks.runs.files import read_declared

DECLARED = read_declared(Path(__file__).with_name("forms.toml"))

_PRESETS = sorted(file.stem for file in PRESETS.glob("*.toml"))
_OWN_PRESETS = {
    product: tuple(name for name in _PRESETS if name.startswith(product))
    for product in ("supplemental_dhc", "detailed_households")
}
PRESET_NAMES = tuple(name for name in _PRESETS if name not in chain(*_OWN_PRESETS.values()))
"""The presets of the TopDown Algorithm, whose names do not begin with a product."""

FULL_PATH = r"^(/|[a-z][a-z0-9+.-]*://)"
FRACTION = r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*(/\s*[1-9][0-9]*\s*)?$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


@dataclass(frozen=True)
class Written:
    """Mark of the type of texts of a pattern: those who type another one read the words.

    A schema has no place for a message of its own: where a text has not the pattern, the constant
    that is then expected is one.
    """

    pattern: str
    words: str

    def checked(self, value: str) -> str:
        """The text; raises ValueError, with the words, if it has not the pattern."""
        if re.search(self.pattern, value) is None:
            raise ValueError(f"{self.words!r} was expected")
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.checked, handler(source))

    def __get_pydantic_json_schema__(
        self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        wrong = {"not": {"pattern": self.pattern}}
        return handler(core) | {"if": wrong, "then": {"const": self.words}}


def _number(kind: Any, name: str, words: str) -> Any:
    """The type of numbers, by the name that a schema has for it."""
    extra: dict[str, Any] = {"if": {"not": {"type": [name, "null"]}}, "then": {"const": words}}
    return Annotated[kind, Field(json_schema_extra=extra)]


TYPES: Mapping[str, Any] = {
    "text": str,
    "name": Annotated[str, Written(NAME, "letters, digits, dots and hyphens, without spaces")],
    # A worker has a working directory of its own, so that paths in a form must be full ones.
    "path": Annotated[str, Written(FULL_PATH, "a full path, such as /data/persons, or a URL")],
    "fraction": Annotated[str, Written(FRACTION, "a number such as 1/2, 0.5 or 1e-10")],
    "texts": list[str],
    "integer": _number(int, "integer", "a whole number"),
    "number": _number(float, "number", "a number"),
}
"""Types of fields: the values, and what is checked of them; fractions are exact, such as 1/2."""


def _field(declared: Mapping[str, Any]) -> tuple[Any, Any]:
    """The type of a field that stands for a setting, and the field; None leaves the setting be.

    A form leaves empty fields out: the schema has neither None nor that it is the default.
    """
    checks = {"ge": declared["at_least"]} if "at_least" in declared else {}
    if "type" in declared:
        kind = TYPES[declared["type"]]
    else:
        presets = {"topdown": PRESET_NAMES, **_OWN_PRESETS}
        choices = declared.get("choices") or presets[declared["presets"]]
        kind = Literal[tuple(choices)]
    nothing: Any = SkipJsonSchema[None]  # type: ignore[misc]  # For mypy it takes no type.
    return Annotated[kind, Field(**checks)] | nothing, Field(
        default_factory=lambda: None,
        title=declared["title"],
        description=declared["description"],
        json_schema_extra={"setting": declared["setting"]},
    )


class SettingsForm(ExactTypes):
    """What every form does with its fields, which `forms.toml` declares."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_serializer(mode="wrap")
    def _filled_in(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What was filled in alone: the schema has no empty values."""
        return {name: value for name, value in serialise(self).items() if value is not None}

    def overrides(self) -> Iterator[str]:
        """What was filled in, as `section.key=value` in TOML."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None:
                value = value == "confidential" if name == "disclosure" else value
                assert isinstance(field.json_schema_extra, dict)
                text = tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
                yield f"{field.json_schema_extra['setting']}={text}"


@cache
def form_of(flow: str) -> type[SettingsForm]:
    """The model of a flow's form: the fields that all flows share, and those that it declares."""
    name = f"{flow.title().replace('-', '')}Form"
    undeclared = {"begins_with": ["settings"], "description": "What every flow asks for."}
    declared = DECLARED.get(name, undeclared)
    shared = [DECLARED["fields"][begun] for begun in declared["begins_with"]]
    fields: dict[str, Any] = {
        key: _field(own)
        for group in (*shared, declared.get("fields", {}))
        for key, own in group.items()
    }
    return create_model(
        name, __base__=SettingsForm, __module__=__name__, __doc__=declared["description"], **fields
    )
