"""The products flow: run several products of one dataset, one after the other.

Each product is a separate run in a folder of the run directory of all, charged to the same ledger,
so that `spineflow resume` continues the product that was interrupted. From the releases of the
products topdown, dhc-units and dhc-persons the flow makes one population.

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

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import Field, create_model, model_validator

from ..tasks.pages.document import Section as PageSection
from ..tasks.population.checks.accuracy import agreement_section
from ..tasks.population.checks.expected import expected_population
from ..tasks.population.estimation.blocks import (
    blocks_of,
    made_file,
    piece_names,
    populate_county,
    read_piece,
    released_file,
    write_members,
    write_release_records,
)
from ..tasks.population.ingest.released import Sources, read_released
from ..tasks.population.release.population import (
    SUMMARY_FILE,
    population_of_pieces,
    write_population,
)
from ..tasks.products.acceptance import accept
from ..tasks.products.product import TOGETHER, Product, Words, parts_of, product
from ..tasks.products.several import write_index, write_products_certificate, write_products_report
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Artifact, Made, created, stopwatch
from ..tasks.runs.publication import refuse_taken_place
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
from ..tasks.runs.settings_files import with_release_of
from ..tasks.runs.steps import step
from ..tasks.topdown.settings import TopdownSettings
from ..validation.population import check_population
from .console import check_input
from .running import flow_of_product, prepare, run_stages
from .stages import finish, stage

SHARED = ("input", "privacy", "release", "run")
"""Tables of settings shared by all products; a key in a product's own table overrides them."""

PUBLISH_TO = ("release", "publish_to")
"""Table and key of the place to which releases are copied."""

REDISTRICTING = "topdown"
"""The product with the redistricting tables."""
OF_POPULATION = {"dhc-units": "dhc_units_2020", "dhc-persons": "dhc_persons_2020"}
"""Products that, with REDISTRICTING, become one population, and the census that each must have."""


class SharedInput(InputSettings):
    """The input of all products that read the census tables."""

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
"""The models of the settings of the products that the flow can run, by name."""

if TYPE_CHECKING:
    ProductTables = ChosenProducts
else:
    ProductTables = create_model(
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
    products: ProductTables

    @property
    def parts(self) -> Mapping[str, ProductSettings]:
        """The settings of the products that are run."""
        return self.products.chosen()

    @property
    def published_to(self) -> str | None:
        """The place to which the one population, its index and its certificate are copied.

        None without one population: each product's run copies its own release.
        """
        return None if self.population is None else self.release.publish_to

    @property
    def release_keys(self) -> tuple[str, ...]:
        """As of all products if there is one population; else none, since the settings of a
        product's release are changed in its own run."""
        return () if self.population is None else super().release_keys

    @property
    def population(self) -> tuple[str, ...] | None:
        """Names of the products whose releases become one population, redistricting first.

        None unless redistricting has coherent persons and units, and the settings have all products
        of `OF_POPULATION`, each with its census and with the redistricting release as input.
        """
        chosen = self.products.chosen()
        redistricting = chosen.get(REDISTRICTING)
        if not isinstance(redistricting, TopdownSettings):
            return None
        if not redistricting.run.coherent or len(redistricting.run.universes) < 2:
            return None
        earlier = {REDISTRICTING}
        for name, census in OF_POPULATION.items():
            own = chosen.get(name)
            if not isinstance(own, TopdownSettings) or own.census != census:
                return None
            earlier |= set(own.input.awaited.values())
        return (REDISTRICTING, *OF_POPULATION) if earlier == {REDISTRICTING} else None

    @model_validator(mode="after")
    def _there_is_a_product(self) -> Self:
        if not self.products.chosen():
            raise ValueError(f"products needs at least one of {', '.join(MODELS)}")
        return self

    @classmethod
    def expanded(cls, own: Mapping[str, Any], with_preset: WithPreset) -> Mapping[str, Any]:
        """The settings with the shared tables and its preset merged into each product's table,
        whose own keys override them."""
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
        """These settings with the settings of every product resolved."""
        chosen = {
            name: own.resolved()
            for name in type(self.products).model_fields
            if (own := getattr(self.products, name)) is not None
        }
        return self.model_copy(update={"products": self.products.model_copy(update=chosen)})

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse products with another dataset, ledger or privacy, invalid settings of a product,
        and a product that reads the release of one that does not run before it."""
        for name, settings in self.products.chosen().items():
            where = f"products.{name}"
            for key in ("dataset", "ledger"):
                if getattr(settings.privacy, key) != getattr(self.privacy, key):
                    refuse(
                        f"{where}.privacy.{key} differs from [privacy]; products of one run have "
                        "the same dataset and ledger"
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
                        f"{where} reads the release of {release!r}, which is not run before it; "
                        f"products run before it: {', '.join(earlier) or 'none'}"
                    )

    def refuse_ineffective(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse settings of a product without effect, and a preset outside its table."""
        if "preset" in own:
            refuse("preset does nothing here; a product's own table names its preset")
        for name, settings in self.products.chosen().items():
            table = table_of(own, "products", name)
            settings.refuse_ineffective(table, refuse_within(f"products.{name}", refuse))


def _product_tables(
    name: str, model: type[ProductSettings], own: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The shared tables for one product.

    If a product has another name than its flow, its release is published in a folder of this name:
    listings are named after flows, and two of one flow would collide.
    """
    shared = _shared_tables(model, own)
    section, key = PUBLISH_TO
    place = shared.get(section, {}).get(key)
    if name != model.PRODUCT and isinstance(place, str):
        shared[section][key] = f"{place.rstrip('/')}/{name}"
    return shared


def _shared_tables(
    model: type[ProductSettings], own: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The shared tables, with only the keys that the product's settings have."""
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


def make_one_population(run: RunDirectory) -> None:
    """Submit the stages that split the released records by county, make the population of every
    county in parallel, write one population of all, and check it."""
    root = str(run.root)
    with stage("gather", "records for one population"):
        gathered = gather_released.submit(root)
    finish([gathered])
    with stage("populate", "counties of one population"):
        made = [populate.submit(root, name, wait_for=[gathered]) for name in piece_names(run)]
    with stage("population"):
        population = make_population.submit(root, wait_for=made)
    finish([population])


@step(
    "gather released",
    ProductsSettings,
    run_name="gather-released",
    made_at=lambda run, _: released_file(run, "households"),
)
def gather_released(run: RunDirectory, settings: ProductsSettings) -> Made:
    """Write the released persons and households in pieces, one for each county."""
    own = blocks_of(read_released(sources_of(run, _names(settings))))
    return created(write_release_records(run, own))


@step(
    "populate",
    ProductsSettings,
    run_name="populate-{piece}",
    made_at=lambda run, _, piece: made_file(run, piece),
)
def populate(run: RunDirectory, _settings: ProductsSettings, piece: str) -> Made:
    """Make households of the persons of a county."""
    return created(write_members(run, piece, populate_county(read_piece(run, piece))))


@step("make population", ProductsSettings, run_name="one population")
def make_population(run: RunDirectory, settings: ProductsSettings) -> Made:
    """Write one population of all pieces next to the index of the releases, and check it.

    A failed check withholds the population.
    """
    redistricting, *_ = names = _names(settings)
    sources = sources_of(run, names)
    declared = cast("TopdownSettings", settings.products.chosen()[redistricting]).compiled_census
    folder = run.unchecked_release
    write_population(population_of_pieces(run, sources), folder)
    expected = expected_population(folder, sources.redistricting.release, declared)
    accept(run, settings, check_population(expected))
    return created(folder)


def _names(settings: ProductsSettings) -> Sequence[str]:
    """The products that become one population, redistricting first."""
    assert settings.population is not None, "only runs with one population have these steps"
    return settings.population


def sources_of(run: RunDirectory, names: Sequence[str]) -> Sources:
    """The runs of the products that become one population."""
    return Sources(*(RunDirectory(run.root / name) for name in names))


def stages(run: RunDirectory, settings: ProductsSettings) -> None:
    """Run all products of a prepared run, each by its flow; finished products are reused."""
    _check_new_products(run, settings)
    for name, chosen in settings.products.chosen().items():
        own = with_release_of(RunDirectory(run.root / name), _with_release_folders(chosen, run))
        part = prepare(own, run.root / name)
        with stopwatch() as seconds:
            run_stages(product(own.PRODUCT), part, own)
        run.record_stages({name: [Artifact(f"{name}/release", seconds=seconds())]})
    names = tuple(settings.products.chosen())
    write_index(run, names, partial(_complete, run, settings))
    write_products_report(run, settings, names, _agreement(run, settings))


def _complete(run: RunDirectory, settings: ProductsSettings, folder: Path) -> None:
    """Add to the index's folder the certificate of all products and, where the releases allow it,
    one population that has passed its checks."""
    if settings.population is not None:
        make_one_population(run)
    statements = {}
    for name, own in settings.products.chosen().items():
        planned = product(own.PRODUCT)
        if planned.plan is not None:
            statements[name] = planned.plan_of(RunDirectory(run.root / name), own).statement
    write_products_certificate(run, settings, statements, folder)


def _agreement(run: RunDirectory, settings: ProductsSettings) -> tuple[PageSection, ...]:
    """The report's section on the agreement of persons and households in one population, if any."""
    names = settings.population
    if names is None or not (run.release / SUMMARY_FILE).exists():
        return ()
    chosen = settings.products.chosen()
    inputs = (settings.input, *(chosen[name].input for name in names))
    may_be_shown = not any(own.confidential for own in inputs)
    section = agreement_section(sources_of(run, names), run.release, with_truth=may_be_shown)
    return (section,)


def _with_release_folders(settings: ProductSettings, run: RunDirectory) -> ProductSettings:
    """Settings with folders in place of the names of earlier products whose releases they read."""
    earlier = settings.input.awaited
    if not earlier:
        return settings
    folders = {key: str(run.root / name) for key, name in earlier.items()}
    return settings.model_copy(update={"input": settings.input.with_releases(folders)})


def _check_new_products(run: RunDirectory, settings: ProductsSettings) -> None:
    """Check publication and input of every product that has not begun, before any is charged."""
    for name, own in settings.products.chosen().items():
        if not (run.root / name).exists():
            refuse_taken_place(RunDirectory(run.root / name), own)
            with redirect_stdout(StringIO()):
                check_input(product(own.PRODUCT), own)


def restore(run: RunDirectory, settings: ProductsSettings) -> None:
    """Write again the report of every product, and the page that links them."""
    for part, own in islice(parts_of(run, settings), 1, None):  # The first is this run itself.
        with part.locked():
            product(own.PRODUCT).words.restore(part, own)
            product(own.PRODUCT).report(part, own)
    names = tuple(settings.products.chosen())
    write_products_report(run, settings, names, _agreement(run, settings))


PRODUCT: Product = Product(
    ProductsSettings,
    words=Words(restore=restore, summary=lambda run, settings: (f"all products: {run.report}",)),
)

products = flow_of_product(
    PRODUCT,
    stages,
    "Releases several products of one dataset, one after the other, all charged to one ledger. The "
    "products and their own settings are in the settings file.",
)
