"""The forms with which the Prefect UI starts runs: settings as typed fields, and a settings file.

A form has the settings of its flow's model that have a title. A field has the key of its
setting. Prefect's server checks the values against the form's schema before it creates a run; the
settings themselves are validated when the run begins. Empty fields leave the settings file, its
preset or the default in effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import Field, SerializerFunctionWrapHandler, create_model, model_serializer
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from ..tasks.products.product import PRESETS
from ..tasks.runs.settings import ExactTypes, ProductSettings, Section, is_path
from ..tasks.topdown.settings import TopdownSettings

_PRESETS = sorted(file.stem for file in PRESETS.glob("*.toml"))
_OF_PRODUCTS = ("supplemental_dhc", "detailed_households")
PRESET_NAMES = tuple(name for name in _PRESETS if not name.startswith(_OF_PRODUCTS))
"""The presets of the TopDown Algorithm, whose names do not begin with a product."""

GEOGRAPHY = {"geography": "The geography reference file."}
CENSUS_TABLES = {"persons": "The persons table.", "units": "The units table."} | GEOGRAPHY
MEASURED_TABLES = {"measurements": "A run's measurements/ or the published layout."} | GEOGRAPHY
"""Tables of the input by name, declared by the census instead of a model of settings."""


def text(pattern: str) -> Any:
    """The type of texts of a pattern, which Prefect's server checks, too."""
    return Annotated[str, Field(pattern=pattern)]


# A worker has another working directory, so that paths in a form must be full ones.
PATH = text(r"^(/|[a-z][a-z0-9+.-]*://)")
TYPES: Mapping[Any, Any] = {
    Fraction: text(r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*(/\s*[1-9][0-9]*\s*)?$"),
    bool: Literal["confidential", "may be disclosed"],
}
"""Types of fields by type of setting: fractions are exact. A switch would show "off" for a value
that was never set."""


Shown = tuple[str, Any, str, str | None]
"""A setting of a form: its dotted key, the type of its field, its title and its description."""


def _type_of(field: FieldInfo) -> Any:
    """The type of the field of a setting."""
    if is_path(field):
        return PATH
    parts: Any = get_args(field.annotation)
    kind = parts[0] if NoneType in parts else field.annotation
    return Annotated[TYPES.get(getattr(kind, "__origin__", kind), kind), Field(), *field.metadata]


def _is_section(kind: Any) -> bool:
    """Whether a type is a section without settings of another product."""
    is_model = isinstance(kind, type) and issubclass(kind, Section)
    return is_model and not issubclass(kind, ProductSettings)


def _settings(model: type[Section], prefix: str = "") -> Iterator[Shown]:
    """The settings of a model and of its sections that have a title.

    Sections by name are limited to the field's examples.
    """
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if field.title is not None:
            yield f"{prefix}{name}", _type_of(field), field.title, field.description
        elif _is_section(kind):
            yield from _settings(kind, f"{prefix}{name}.")
        for example in field.examples or ():
            for key, own, title, words in _settings(
                get_args(kind)[1], f"{prefix}{name}.{example}."
            ):
                yield key, own, f"{title} of {example}", words


def _tables(model: type[ProductSettings]) -> Iterator[Shown]:
    """The tables of the input whose names the census declares, if it has such."""
    inputs: Any = model.model_fields["input"].annotation
    if inputs.model_config["extra"] == "allow" or "persons" in inputs.model_fields:
        is_measured = model.PRODUCT == "estimate"
        for name, words in (MEASURED_TABLES if is_measured else CENSUS_TABLES).items():
            yield f"input.{name}", PATH, name.capitalize(), words


def _preset(model: type[ProductSettings]) -> Iterator[Shown]:
    """The preset, of a product that has any."""
    own = model.PRODUCT.replace("-", "_")
    of_own = tuple(name for name in _PRESETS if own in _OF_PRODUCTS and name.startswith(own))
    names = PRESET_NAMES if issubclass(model, TopdownSettings) else of_own
    if names:
        words = "Budgets, query strategies, passes and rules of a published run."
        yield "preset", Literal[names], "Preset", words


def _name_of(key: str) -> str:
    """The name of the field of a setting.

    >>> [_name_of(key) for key in ("privacy.dataset", "mechanism.name", "budget.persons.rho")]
    ['dataset', 'mechanism', 'rho_persons']
    """
    *sections, last = key.split(".")
    named = {"confidential": "disclosure", "name": "mechanism"}.get(last, last)
    return "_".join([named, *sections[1:]])


class SettingsForm(ExactTypes):
    """Common behaviour of all forms."""

    @model_serializer(mode="wrap")
    def _filled_in(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The filled-in fields alone: the schema has no empty values."""
        return {name: value for name, value in serialise(self).items() if value is not None}

    def overrides(self) -> Iterator[str]:
        """The filled-in fields, as `section.key=value` in TOML."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None:
                value = value == "confidential" if name == "disclosure" else value
                assert isinstance(field.json_schema_extra, dict)
                text = tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
                yield f"{field.json_schema_extra['setting']}={text}"


@cache
def form_of(model: type[ProductSettings]) -> type[SettingsForm]:
    """The model of the form of a product's settings.

    None, the value of an empty field, leaves a setting unchanged: the schema has neither
    None nor the default.
    """
    name = f"{model.PRODUCT.title().replace('-', '')}Form"
    nothing: Any = SkipJsonSchema[None]  # type: ignore[misc]  # For mypy it takes no type.
    fields: dict[str, Any] = {
        _name_of(key): (
            kind | nothing,
            Field(
                default_factory=lambda: None,
                title=title,
                description=words,
                json_schema_extra={"setting": key},
            ),
        )
        for key, kind, title, words in (*_preset(model), *_tables(model), *_settings(model))
    }
    words = f"The settings of {model.PRODUCT} that are changed most."
    return create_model(name, __base__=SettingsForm, __module__=__name__, __doc__=words, **fields)
