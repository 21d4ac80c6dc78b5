"""Settings of the products flow: several products of one dataset, charged to one ledger.

[input]                      # shared by the products
persons = "persons.parquet"
...
[privacy]
dataset = "county"
[products.topdown]           # the rest of a product's own settings file
preset = "pl94_2020_us"
[products.dhc-persons]
preset = "dhc_persons_2020_us"
input = { redistricting = "products.topdown" }     # the release of an earlier product
[products.detailed-groups.input]
parameters = "params"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, create_model, model_validator

from ..tasks.products.registry import TOGETHER, product
from ..tasks.runs.settings import (
    FilePath,
    InputSettings,
    ProductSettings,
    Refuse,
    Section,
    WithPreset,
    merged_tables,
    refuse_within,
    table_of,
)
from ..tasks.topdown.settings import TopdownSettings

SHARED = ("input", "privacy", "release", "run")
"""Tables given once for all products; a product's own keys in them win."""


ALWAYS = ("confidential", "dataset", "ledger", "infinite", "seed")
"""Keys of shared tables that concern the whole run too."""

PUBLICATION = ("release", "publish_to")
"""The key of a shared table for the place to which one population is copied."""

REDISTRICTING = "topdown"
OF_POPULATION = {"dhc-units": "dhc_units_2020", "dhc-persons": "dhc_persons_2020"}
"""Products that become one population with the redistricting one, and the census of each."""


class SharedInput(InputSettings):
    """The census tables, for the products that read them."""

    persons: FilePath | None = None
    """Table of persons, in the layout of the Census Edited File."""
    units: FilePath | None = None
    """Table of housing units and group-quarters facilities."""
    geography: FilePath | None = None
    """Table of blocks."""


class ChosenProducts(Section):
    """The settings of each product to run."""

    def chosen(self) -> dict[str, ProductSettings]:
        """Settings by name of the product, in the order in which the products are run."""
        names = {field.alias or name: name for name, field in type(self).model_fields.items()}
        found = {alias: getattr(self, name) for alias, name in names.items()}
        return {alias: settings for alias, settings in found.items() if settings is not None}


MODELS: dict[str, type[ProductSettings]] = {
    name: product(flow).settings for name, flow in TOGETHER.items()
}
"""The models of the products that the flow can run, by name."""

if TYPE_CHECKING:
    OneOfEach = ChosenProducts
else:
    OneOfEach = create_model(
        "ChosenProducts",
        __base__=ChosenProducts,
        **{
            name.replace("-", "_"): (model | None, Field(default=None, alias=name))
            for name, model in MODELS.items()
        },
    )


class ProductsSettings(ProductSettings):
    """All settings of a run of several products."""

    PRODUCT: ClassVar[str] = "products"

    input: SharedInput = SharedInput()
    products: OneOfEach

    @property
    def parts(self) -> Mapping[str, ProductSettings]:
        """The settings of the products that are run."""
        return self.products.chosen()

    @property
    def published_to(self) -> str | None:
        """Place of copies of the one population, with the index and the certificate; None without
        one, since every product's release is copied by its own run.
        """
        return None if self.population is None else self.release.publish_to

    @property
    def release_keys(self) -> tuple[str, ...]:
        """The settings of the one population; the run of a product changes its own."""
        return () if self.population is None else super().release_keys

    @property
    def population(self) -> tuple[str, ...] | None:
        """Names of the products whose releases become one population: redistricting, in which
        households are possible, units and persons; None where these are not all run.
        """
        chosen = self.products.chosen()
        redistricting = chosen.get(REDISTRICTING)
        if not isinstance(redistricting, TopdownSettings):
            return None
        if not redistricting.run.coherent or len(redistricting.run.universes) < 2:
            return None
        held = {REDISTRICTING}
        for name, census in OF_POPULATION.items():
            own = chosen.get(name)
            if not isinstance(own, TopdownSettings) or own.census != census:
                return None
            held |= set(own.input.awaited.values())
        return (REDISTRICTING, *OF_POPULATION) if held == {REDISTRICTING} else None

    @model_validator(mode="after")
    def _there_is_a_product(self) -> Self:
        if not self.products.chosen():
            raise ValueError(f"products needs at least one of {', '.join(MODELS)}")
        return self

    @classmethod
    def expanded(cls, own: Mapping[str, Any], with_preset: WithPreset) -> Mapping[str, Any]:
        """Each product's table with the shared tables and its preset beneath it."""
        products = own.get("products")
        if not isinstance(products, Mapping):
            return own
        expanded = {
            name: with_preset(
                model, merged_tables(_product_tables(name, model, own), products[name])
            )
            if (model := MODELS.get(name)) is not None and isinstance(products[name], Mapping)
            else products[name]
            for name in products
        }
        return {**own, "products": expanded}

    def resolved(self) -> Self:
        """With the settings of every product resolved."""
        chosen = {
            name: own.resolved()
            for name in type(self.products).model_fields
            if (own := getattr(self.products, name)) is not None
        }
        return self.model_copy(update={"products": self.products.model_copy(update=chosen)})

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse products of other people, then misfits in a product's own settings."""
        for name, settings in self.products.chosen().items():
            where = f"products.{name}"
            for key in ("dataset", "ledger"):
                if getattr(settings.privacy, key) != getattr(self.privacy, key):
                    refuse(
                        f"{where}.privacy.{key} differs from [privacy]; products run together "
                        "spend on one dataset, in one ledger"
                    )
            if settings.is_private != self.is_private:
                why = settings.why_not_private or self.why_not_private
                refuse(
                    f"of {where} and [privacy] one is private and one is not ({why}); set "
                    "privacy.infinite and privacy.seed in [privacy] alone, and run the published "
                    "calibration by itself"
                )
            settings.refuse_invalid(refuse_within(where, refuse))
            earlier = list(self.products.chosen())[: list(self.products.chosen()).index(name)]
            for release in settings.input.awaited.values():
                if release not in earlier:
                    refuse(
                        f"{where} is held to {release!r}, which is no product that runs before "
                        f"it; there are {', '.join(earlier) or 'none'}"
                    )

    def refuse_ineffective(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse idle settings of a product, and shared keys that all products replace."""
        if "preset" in own:
            refuse("preset does nothing here; a product's own table names its preset")
        chosen = self.products.chosen()
        tables = {name: table_of(own, "products", name) for name in chosen}
        for section in SHARED:
            for key in table_of(own, section):
                readers = [
                    name
                    for name in chosen
                    if key in _tables_without_own_keys(MODELS[name], own).get(section, {})
                    and key not in table_of(tables[name], section)
                ]
                copies = (section, key) == PUBLICATION and self.published_to is not None
                if not readers and key not in ALWAYS and not copies:
                    refuse(
                        f"{section}.{key} does nothing, because every product that reads it has "
                        "its own; remove it"
                    )
        for name, settings in chosen.items():
            where = f"products.{name}"
            whole = merged_tables(_tables_without_own_keys(MODELS[name], own), tables[name])
            settings.refuse_ineffective(whole, refuse_within(where, refuse))


def _product_tables(
    name: str, model: type[ProductSettings], own: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The shared tables beneath a product's own. A product not named as its flow is published in
    a folder of its own, because listings have the names of flows.
    """
    shared = _tables_without_own_keys(model, own)
    section, key = PUBLICATION
    place = shared.get(section, {}).get(key)
    if name != model.PRODUCT and isinstance(place, str):
        shared[section][key] = f"{place.rstrip('/')}/{name}"
    return shared


def _tables_without_own_keys(
    model: type[ProductSettings], own: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The shared tables, less the keys that a product's own tables do not have."""
    shared = {}
    for name in SHARED:
        table = own.get(name, {})
        section = model.model_fields[name].annotation
        if not isinstance(section, type) or not issubclass(section, Section):
            raise TypeError(f"{name} of {model.__name__} is no section")
        if isinstance(table, Mapping):
            takes_all = section.model_config.get("extra") == "allow"
            shared[name] = {
                key: value
                for key, value in table.items()
                if takes_all or key in section.model_fields
            }
    return shared
