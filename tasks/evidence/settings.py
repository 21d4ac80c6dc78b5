"""Settings of a comparison of protection methods, and its requirements on the product.

A comparison uses the product only through a `ProtectedCensus`, which a flow names in
`EvidenceSettings.CENSUS`. Its settings are a census with its tables, methods and attacks:

[input]                          # as for topdown; confidential = false
[privacy]
dataset = "county"
[topdown]                        # the rest of a topdown settings file
preset = "block_tables_2010"
[evidence]
households = { residence = ["household"] }
[methods.swapping]
kind = "swapping"
rates = ["0.02", "0.10"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field
from scipy import sparse

from ..census.attribute_declarations import Where
from ..census.counting import People
from ..census.declarations import TableDeclaration
from ..census.queries import Schema, marginal_query
from ..runs.files import read_declared
from ..runs.names import FileName, did_you_mean
from ..runs.settings import (
    ExactFraction,
    Loss,
    ProductSettings,
    Refuse,
    Section,
    WithPreset,
    merged_tables,
    refuse_within,
    refusing,
)
from .perturbation import Perturbation


class ProtectedCensus(Protocol):
    """A census whose people can be listed, and released under differential privacy.

    `settings` are of the product's model. An instance is passed to the workers by its module and
    name, so it is made at the top of a module.
    """

    @property
    def settings(self) -> type[ProductSettings]:
        """Model of the product's settings."""

    def schema(self, settings: Any, universe: str) -> Schema:
        """The schema of a universe; raises KeyError for a universe that there is not."""

    def tables(self, settings: Any) -> Sequence[TableDeclaration]:
        """The tables that the census declares."""

    def levels(self, settings: Any) -> Sequence[str]:
        """The levels whose entities are known: geolevels, and columns that tables are by."""

    def read(self, settings: Any, universe: str, folder: Path) -> People:
        """Read and check the input, keep it in a folder for `release`, and list the people."""

    def entities(self, settings: Any, folder: Path, level: str) -> tuple[np.ndarray, Sequence[str]]:
        """Each area's entity of one of the `levels`, -1 for none, and the entities' codes."""

    def spending(self, settings: Any, universe: str, rho: Fraction | None, estimator: Any) -> Any:
        """Settings of a run of one universe that spends rho, by default its own."""

    def keep(
        self, settings: Any, universe: str, people: People, dataset: Path, folder: Path
    ) -> None:
        """Keep in a new folder, for `release`, a copy of another with other people of a universe in
        the same areas, as many in each.
        """

    def release(
        self, settings: Any, universe: str, dataset: Path, seed: int, folder: Path
    ) -> sparse.csr_array:
        """Released counts `(n_areas, n_cells)` of a run under a seed, in an empty folder."""


Reading = Literal["reads as allowed", "reads as forbidden", "unclear"]
"""Reported status of a method under the order DAO 216-26 of June 2026, without judgement of
ours."""


class Facts(NamedTuple):
    """Declared facts of a method.

    invariants : figures that are published unchanged. reading : reported status under the order.
    is_random : whether several draws differ.
    """

    invariants: str
    reading: Reading = "reads as allowed"
    is_random: bool = False


class ProtectionMethod(Section):
    """A protection method, with its declared facts by `how` it is done, where that is a setting."""

    STRENGTHS: ClassVar[tuple[str, str] | None] = None
    """The setting that lists its strengths, and each in words; None for a single one."""
    GUARANTEE: ClassVar[str] = "none stated"
    """Guarantee against an attacker with any knowledge."""
    FACTS: ClassVar[Mapping[str, Facts]]

    @property
    def strengths(self) -> tuple[str, ...]:
        """Its strengths in words, in the order of the settings."""
        if self.STRENGTHS is None:
            return ("",)
        setting, words = self.STRENGTHS
        named = tuple(words.format(float(strength)) for strength in getattr(self, setting))
        return named or (f"{setting} as set",)

    @property
    def facts(self) -> Facts:
        """The facts of the method as the settings have it."""
        return self.FACTS[getattr(self, "how", "")]


class NoProtection(ProtectionMethod):
    """The true tables: the ceiling of every attack."""

    FACTS = {"": Facts("all counts")}

    kind: Literal["nothing"]


class Rounding(ProtectionMethod):
    """Every count becomes a multiple of a base."""

    STRENGTHS = ("bases", "base {:.0f}")
    FACTS = {
        "nearest": Facts("multiples of the base stay"),
        # Reports differ on random rounding.
        "random": Facts("multiples of the base stay", "unclear", is_random=True),
        "controlled": Facts("sums of tables"),
    }

    kind: Literal["rounding"]
    how: Literal["nearest", "random", "controlled"] = "random"
    """nearest; random: without bias, the same count always alike; controlled: tables add up."""
    bases: tuple[Annotated[int, Field(ge=2, le=100)], ...] = Field(default=(3, 5), min_length=1)
    """Multiples to which counts are rounded."""


class Coarsening(ProtectionMethod):
    """Small counts become ranges, or small areas are merged."""

    STRENGTHS = ("thresholds", "threshold {:.0f}")
    FACTS = {
        "ranges": Facts("zeros and counts of the threshold and more"),
        "minimum_size": Facts("counts of areas of the size and more"),
    }

    kind: Literal["coarsening"]
    how: Literal["ranges", "minimum_size"] = "ranges"
    """ranges: counts from 1 to below the threshold; minimum_size: neighbouring areas of a level are
    merged until each has as many persons as the threshold."""
    thresholds: tuple[Annotated[int, Field(ge=2)], ...] = Field(default=(5, 10), min_length=1)
    """Counts, or sizes of areas, from which on nothing is changed."""


class Suppression(ProtectionMethod):
    """Counts from 1 to below a threshold are withheld, and the secondary cells that would reveal
    them."""

    STRENGTHS = ("thresholds", "threshold {:.0f}")
    FACTS = {"": Facts("all counts that are published")}

    kind: Literal["suppression"]
    thresholds: tuple[Annotated[int, Field(ge=2)], ...] = Field(default=(3, 10), min_length=1)
    """Counts below which cells are withheld."""


class Swapping(ProtectionMethod):
    """Pairs of like households exchange their areas before anything is counted."""

    STRENGTHS = ("rates", "{:.3g} of households")
    FACTS = dict.fromkeys(
        ("american", "european"),
        Facts(
            "households by size and by number of those who must agree, in every area",
            "reads as forbidden",
            is_random=True,
        ),
    )

    kind: Literal["swapping"]
    how: Literal["american", "european"] = "american"
    """`american`: targeted, ten nearest partners; `european`: risk by level, see `smallest`."""
    rates: tuple[ExactFraction, ...] = Field(
        default=(Fraction(1, 50), Fraction(1, 20), Fraction(1, 10)), min_length=1
    )
    """Share of the households that are swapped, both partners counted."""
    smallest: int = Field(default=3, ge=0)
    """european: a person among fewer of its kind in an area is at risk; 0 switches that off."""


class CellKeys(ProtectionMethod):
    """Noise from a perturbation table that the records of a cell fix."""

    STRENGTHS = ("variances", "variance {:.3g}")
    FACTS = {"": Facts("zeros", "unclear", is_random=True)}

    kind: Literal["cell_keys"]
    largest: int = Field(default=5, ge=1, le=50)
    """Largest noise D."""
    variances: tuple[ExactFraction, ...] = Field(default=(Fraction(1), Fraction(3)), min_length=1)
    """Largest variances V."""
    threshold: int = Field(default=0, ge=0)
    """js: no counts from 1 to it are published."""
    staying: ExactFraction | None = None
    """Least probability that a count stays."""
    monotone: bool = False
    """Whether noise nearer to 0 may not be rarer, for negative noise."""
    additive: bool = False
    """Whether areas above the smallest get the sums of its perturbed counts."""

    def perturbation(self, strength: int) -> Perturbation:
        """The perturbation table of a strength, by position."""
        return Perturbation(
            self.largest,
            float(self.variances[strength]),
            self.threshold,
            None if self.staying is None else float(self.staying),
            (self.monotone,),
        )


class DifferentialPrivacy(ProtectionMethod):
    """Releases of the product, which its settings describe."""

    STRENGTHS = ("rho", "rho {:.3g}")
    GUARANTEE: ClassVar[str] = (
        "zero-concentrated differential privacy with the rho named, of one changed record"
    )
    FACTS = {"": Facts("those that the census declares", "reads as forbidden", is_random=True)}

    kind: Literal["differential_privacy"]
    estimator: Literal["topdown", "full_information", "block_by_block"] = "topdown"
    """Estimator of topdown."""
    rho: tuple[Loss, ...] = ()
    """Budgets of zero-concentrated differential privacy; left out, the settings' own."""


Method = Annotated[
    NoProtection | Rounding | Coarsening | Suppression | Swapping | CellKeys | DifferentialPrivacy,
    Field(discriminator="kind"),
]
"""A protection method at several strengths."""


class Comparison(Section):
    """Tables, areas, attacks and draws of a comparison."""

    universe: str = "persons"
    """Whose tables are published."""
    tables: tuple[str, ...] = ()
    """The tables that the census declares and that are published; if omitted, all of the
    universe."""
    read: tuple[str, ...] = ()
    """Those of them that users read, by whose error methods are compared; if omitted, all."""
    read_levels: tuple[str, ...] = ()
    """Levels at which they read them; if omitted, all but the smallest of the tables'."""
    households: Where = {}
    """Persons who live in households, which are swapped; if omitted, all who refer to a unit."""
    agree: Where = {}
    """Persons, such as adults, whose number must be equal in two swapped households, as must
    their size; left out, their size alone."""
    risk: str = "detailed"
    """Marginal query whose answers identify rare persons and households in swapping."""
    regions: tuple[str, ...] = ()
    """Levels of areas between which households are swapped, from large to small; left out, all
    levels of the tables but the smallest."""
    note: str = ""
    """A sentence for the page, such as which columns of the data are imputed."""
    draws: int = Field(
        default=2, ge=1, title="Draws", description="Releases of every random method."
    )
    seed: int = 1
    """Makes all draws repeatable."""
    attacks: tuple[
        Literal["reconstruction", "differencing", "averaging", "swap_detection", "membership"], ...
    ] = ("reconstruction", "differencing", "averaging", "swap_detection", "membership")
    """Attacks on every release."""
    known: str = ""
    """Marginal query whose answer, with the area, an attacker knows of every person, such as sex
    and age; left out, rebuilt persons are not matched."""
    learned: str = ""
    """Marginal query whose answer the attacker infers, such as race; needs `known`."""
    blocks: int | None = Field(
        default=None,
        ge=1,
        title="Blocks",
        description="Areas of the last geolevel that are reconstructed, drawn at random; left "
        "empty, all.",
    )
    seconds: float = Field(default=2.0, gt=0)
    """Longest time of a solver for one part of an area; undecided parts are reported."""


class EvidenceSettings(ProductSettings):
    """All settings of a comparison.

    A flow names the product in `CENSUS` and gives the fields `input` and `product_settings` their
    types; in a settings file the latter are in the table of the product's name.
    """

    PRODUCT: ClassVar[str] = "evidence"
    NEEDS_PUBLIC_DATA: ClassVar[str] = (
        "a comparison draws releases that no ledger records, and its figures reveal shares of "
        "right guesses: compare on data that may be disclosed, and set input.confidential = false"
    )
    CENSUS: ClassVar[ProtectedCensus]

    evidence: Comparison = Comparison()
    methods: dict[FileName, Method] = Field(min_length=1)
    product_settings: ProductSettings

    @property
    def declared_tables(self) -> tuple[TableDeclaration, ...]:
        """The tables of the universe that the census declares, with a query and levels."""
        return tuple(
            table
            for table in self.CENSUS.tables(self.product_settings)
            if table.universe == self.evidence.universe and table.levels and not table.rows
        )

    @property
    def published_tables(self) -> tuple[TableDeclaration, ...]:
        """The published ones among them."""
        wanted = self.evidence.tables
        return tuple(table for table in self.declared_tables if not wanted or table.name in wanted)

    @property
    def why_not_private(self) -> str:
        """A comparison never is."""
        return "releases are drawn from a fixed seed and graded by the truth"

    @property
    def draws_noise(self) -> bool:
        """No ledger records the draws: the data may be disclosed."""
        return False

    @classmethod
    def expanded(cls, own: Mapping[str, Any], with_preset: WithPreset) -> Mapping[str, Any]:
        """The product's settings whole, with their preset; and every method that is offered, where
        a settings file names none.
        """
        name = cls.CENSUS.settings.PRODUCT
        shared = {key: own[key] for key in ("input", "privacy", "run") if key in own}
        table = own.get(name, {})
        if not isinstance(table, Mapping):
            return own
        rest = {key: value for key, value in own.items() if key != name}
        whole = with_preset(cls.CENSUS.settings, merged_tables(shared, table))
        return {"methods": OFFERED} | rest | {"product_settings": whole}

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse tables, conditions and methods that the census or the parameters do not allow."""
        own = self.product_settings
        own.refuse_invalid(refuse_within(self.CENSUS.settings.PRODUCT, refuse))
        universe = self.evidence.universe
        try:
            schema = self.CENSUS.schema(own, universe)
        except KeyError:
            refuse(f"evidence.universe is {universe!r}, which the census does not have")
            return
        for name in ("households", "agree"):
            with refusing(f"evidence.{name}", refuse):
                schema.cells_where(getattr(self.evidence, name))
        for name in ("risk", "known", "learned"):
            if query := getattr(self.evidence, name):
                with refusing(f"evidence.{name}", refuse):
                    marginal_query(schema, query)
        if bool(self.evidence.known) != bool(self.evidence.learned):
            refuse("evidence.known and evidence.learned go together; give both or neither")
        levels = self.CENSUS.levels(own)
        published = list(
            dict.fromkeys(level for table in self.published_tables for level in table.levels)
        )
        known = [table.name for table in self.declared_tables]
        names = [table.name for table in self.published_tables]
        declared = f"the census declares, of {universe} with a query and levels,"
        for setting, allowed, what in (
            ("regions", levels, "the census has"),
            ("read_levels", published, "tables are published of"),
            ("tables", known, declared),
            ("read", names, "published are"),
        ):
            for name in getattr(self.evidence, setting):
                if name not in allowed:
                    refuse(
                        f"evidence.{setting} names {name!r}{did_you_mean(name, allowed)}; {what} "
                        f"{', '.join(allowed)}"
                    )
        if not known:
            refuse(
                f"the census declares no tables of {universe}; give [[census.tables]] with a query "
                'and levels, or take topdown.preset = "block_tables_2010"'
            )
        if not any(method.kind == "nothing" for method in self.methods.values()):
            refuse('methods needs one of kind "nothing": the ceiling of attacks')
        for name, method in self.methods.items():
            if isinstance(method, Swapping) and not all(0 < rate <= 1 for rate in method.rates):
                refuse(f"methods.{name}.rates must be above 0 and at most 1")
            if isinstance(method, CellKeys):
                for strength in range(len(method.variances)):
                    with refusing(f"methods.{name}", refuse):
                        method.perturbation(strength).table()


OFFERED: Mapping[str, Mapping[str, Any]] = read_declared(
    Path(__file__).parent / "presets" / "offered.toml"
)
"""Each in the range of parameters that offices use."""
