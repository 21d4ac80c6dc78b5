"""Settings of the trips flow: tables, areas, mechanism, shares, and neighbouring tables."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from ..ledger.accounting import BOUNDED, rho_from_epsilon_simple, rho_from_epsilon_tight
from ..ledger.plan import REPORT_DELTA
from ..runs.settings import (
    Conditions,
    ExactFraction,
    FilePath,
    InputSettings,
    Loss,
    Neighbors,
    PrivacySettings,
    Probability,
    ProductSettings,
    Refuse,
    Section,
    exact_fraction,
    refuse_shares,
)

INFTDA = "inftda"
"""Top-down with the integer Chebyshev projection of Algorithm 2 in [InfTDA2024]."""

TDA_L2 = "tda_l2"
"""Top-down with the exact integer L2 projection."""

TDA_CHEBYSHEV = "tda_chebyshev"
"""Top-down with any Chebyshev minimiser, as a general solver finds it."""

FULL_INFORMATION = "inftda_full_information"
"""All levels' measurements combined by least squares on the tree, then projected top-down."""

GAUSSIAN_LEAVES = "gaussian_leaves"
"""Discrete Gaussian noise on every leaf, positive or not."""

STABILITY_HISTOGRAM = "stability_histogram"
"""Discrete Laplace noise on positive leaves, suppressed below a threshold."""

TOP_DOWN = (INFTDA, TDA_L2, TDA_CHEBYSHEV, FULL_INFORMATION)
"""Those whose estimates are consistent and not negative, with an exact invariant root."""

SHARE_RULES = ("uniform", "geometric", "optimised")

RESERVED = ("count", "level", "plb", "value", "variance")
"""Columns of a run's files in addition to the codes of a row."""

RHO_FROM_EPSILON = {"simple": rho_from_epsilon_simple, "tight": rho_from_epsilon_tight}
"""The conversions of an epsilon and a delta, by name."""


def _shares(value: Any) -> str | tuple[Fraction, ...]:
    """The name of a rule, or a list of exact fractions."""
    if isinstance(value, str) and value in SHARE_RULES:
        return value
    if isinstance(value, list | tuple) and value:
        return tuple(exact_fraction(share) for share in value)
    rules = ", ".join(f'"{rule}"' for rule in SHARE_RULES)
    raise ValueError(f"must be one of {rules} or a list of fractions, one for each measured level")


class TripsInput(InputSettings):
    """A table of origins and destinations, or any table as a tree of its columns."""

    trips: FilePath | None = Field(
        default=None, title="Trips", description="One row per pair of finest areas."
    )
    origin: str | None = Field(default=None, title="Origin", description="Column of origins.")
    destination: str | None = Field(
        default=None, title="Destination", description="Column of destinations."
    )
    count: str | None = Field(
        default=None,
        title="Count",
        description="Column of counts; without it every row is one trip.",
    )
    person: str | None = None
    """Column of persons, by which privacy.trips_per_person is checked or enforced."""
    areas: FilePath = Field(title="Areas", description="Table with level, area, parent.")
    destination_areas: FilePath | None = None
    """Areas of destinations; if omitted, those of origins."""
    table: FilePath | None = None
    """Table with a column for each level of a tree, and counts."""
    levels: tuple[str, ...] = ()
    """Columns of `table`, coarsest first."""

    FORMER = {"public_levels": False}

    @property
    def ends(self) -> tuple[str, str]:
        """Columns of origins and destinations; raises ValueError for a table as a tree."""
        if self.origin is None or self.destination is None:
            raise ValueError("input names no columns of origins and destinations")
        return self.origin, self.destination


class TripsPrivacy(PrivacySettings):
    """How much is spent on whom: rho, or epsilon and delta."""

    epsilon: Loss | None = Field(
        default=None, title="epsilon", description="Budget, together with delta."
    )
    delta: Probability | None = Field(
        default=None, title="delta", description="Below one over the number of persons."
    )
    conversion: Literal["simple", "tight"] = "simple"
    """How epsilon and delta become rho: Bun and Steinke's bound, or the smaller noise of Canonne,
    Kamath and Steinke's."""
    rho: Loss | None = Field(
        default=None,
        title="rho",
        description="Budget of zero-concentrated privacy instead.",
    )
    neighbors: Neighbors = "bounded"
    """`bounded`: a person is changed; `unbounded`: added or removed."""
    trips_per_person: int = Field(default=1, ge=1, le=1_000_000)
    """Most trips of a person."""
    distinct_trips: bool = False
    """No person has two trips in one cell of the table."""
    excess_trips: Literal["refused", "dropped"] = "refused"
    """Trips of a person beyond trips_per_person, where input.person identifies persons: refused,
    or dropped at random."""
    total: Literal["invariant", "measured"] | None = None
    """Whether the number of trips is released exactly; None follows from the neighbours."""

    @property
    def is_bounded(self) -> bool:
        """Whether neighbouring tables differ in a person who is changed, not added or removed."""
        return self.neighbors == BOUNDED

    @property
    def has_invariant_total(self) -> bool:
        """Whether neighbouring tables have the same number of trips, m of every person."""
        return self.is_bounded and self.total != "measured"

    @property
    def epsilon_and_delta(self) -> tuple[Fraction, Fraction]:
        """The budget where it is not rho; raises ValueError where one of the two is missing."""
        if self.epsilon is None or self.delta is None:
            raise ValueError("privacy has no epsilon with a delta")
        return self.epsilon, self.delta


class TripsMechanism(Section):
    """Mechanism, shares and projection."""

    name: Literal[
        "inftda",
        "tda_l2",
        "tda_chebyshev",
        "inftda_full_information",
        "gaussian_leaves",
        "stability_histogram",
    ] = Field(
        default="inftda",
        title="Mechanism",
        description="How trips are measured and estimated.",
    )
    tree: Literal["destination", "origin"] = "destination"
    """Whether destinations or origins are divided first."""
    remove_small_values: Literal["first", "last"] = "first"
    """`first` removes false positives, `last` false negatives."""
    shares: Annotated[str | tuple[Fraction, ...], BeforeValidator(_shares)] = "uniform"
    """`uniform`, `geometric`, `optimised`, or the share of each measured level."""
    share_ratio: ExactFraction = Fraction(1)
    """Ratio of each level's share to that of the level above, if geometric; then not 1."""
    projection: Literal["chebyshev", "euclidean"] = "chebyshev"
    """Projection of `inftda_full_information`."""
    most_nodes: int = Field(default=20_000_000, ge=1)
    """A tree with more nodes is not measured whole."""


class TripsSettings(ProductSettings):
    """Settings of one trips run."""

    PRODUCT: ClassVar[str] = "trips"
    ASIDE = frozenset({"design"})

    input: TripsInput
    privacy: TripsPrivacy
    mechanism: TripsMechanism = TripsMechanism()

    @property
    def rho(self) -> Fraction | None:
        """The zCDP budget, converted if epsilon and delta are given; None is infinite."""
        if self.privacy.infinite:
            return None
        if self.privacy.rho is not None:
            return self.privacy.rho
        return RHO_FROM_EPSILON[self.privacy.conversion](*self.privacy.epsilon_and_delta)

    @property
    def report_delta(self) -> Fraction:
        """The delta at which epsilon is shown."""
        return REPORT_DELTA if self.privacy.delta is None else self.privacy.delta

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Check the input's keys, the loss, the neighbours and explicit shares."""
        self._refuse_input(refuse)
        self._refuse_privacy(refuse)
        shares = self.mechanism.shares
        if isinstance(shares, tuple):
            named = {str(position): share for position, share in enumerate(shares)}
            refuse_shares(named, "mechanism.shares", refuse)
            if 0 in shares:
                refuse("mechanism.shares holds a 0; every measured level needs a positive share")
        if self.mechanism.share_ratio <= 0:
            refuse("mechanism.share_ratio must be a positive fraction")
        if shares == "geometric" and self.mechanism.share_ratio == 1:
            refuse(
                "mechanism.shares = 'geometric' does nothing at a ratio of 1; give "
                "mechanism.share_ratio"
            )

    @property
    def conditions(self) -> Conditions:
        """As for every product, and settings of some mechanisms and of several trips a person."""
        own = self.mechanism
        is_topdown = own.name not in (GAUSSIAN_LEAVES, STABILITY_HISTOGRAM)
        of_topdown = (is_topdown, "a top-down mechanism")
        is_full = (own.name == FULL_INFORMATION, f"the mechanism {FULL_INFORMATION}")
        return {
            **super().conditions,
            "mechanism.shares": of_topdown,
            "mechanism.remove_small_values": (
                is_topdown and own.name != TDA_CHEBYSHEV,
                "a top-down mechanism with a projection of its own",
            ),
            "mechanism.tree": (
                (self.input.trips is not None, "input.trips") if is_topdown else of_topdown
            ),
            "mechanism.share_ratio": (
                own.shares == "geometric" and is_topdown,
                "geometric shares",
            ),
            "mechanism.projection": is_full,
            "mechanism.most_nodes": is_full,
            "privacy.distinct_trips": (
                self.privacy.trips_per_person > 1,
                "privacy.trips_per_person",
            ),
        }

    def _refuse_input(self, refuse: Refuse) -> None:
        given = self.input
        pair = {"origin": given.origin, "destination": given.destination}
        if (given.trips is None) == (given.table is None):
            refuse(
                "input must name either trips, with origin and destination, or a table, with levels"
            )
        if given.trips is not None:
            missing = [name for name, value in pair.items() if value is None]
            if missing:
                refuse(f"input.{missing[0]} is missing; input.trips needs it")
            if given.levels:
                refuse("input.levels goes with input.table; remove it")
        else:
            if given.origin or given.destination or given.destination_areas:
                refuse(
                    "input.origin, input.destination and input.destination_areas go with "
                    "input.trips; remove them"
                )
            if not given.levels:
                refuse("input.levels is missing; list the columns of input.table, coarsest first")
        names = [*given.levels, given.origin, given.destination, given.count, given.person]
        named = [name for name in names if name is not None]
        for name in named:
            if named.count(name) > 1:
                refuse(f"input names the column {name!r} twice; each has one meaning")
        for column in [*given.levels, given.origin, given.destination]:
            if column in RESERVED:
                refuse(f"input names a column {column!r}, as files of the run do; rename it")

    def _refuse_privacy(self, refuse: Refuse) -> None:
        privacy = self.privacy
        if privacy.epsilon is not None and privacy.rho is not None:
            refuse("privacy gives both epsilon and rho; remove one of them")
        if privacy.epsilon is not None and privacy.delta is None:
            refuse("privacy.delta is missing; privacy.epsilon needs it")
        is_stability = self.mechanism.name == STABILITY_HISTOGRAM
        if privacy.conversion == "tight" and (privacy.epsilon is None or is_stability):
            refuse(
                "privacy.conversion turns epsilon and delta into rho, and nothing is turned here; "
                "remove it"
            )
        if privacy.excess_trips == "dropped" and self.input.person is None:
            refuse(
                "privacy.excess_trips = 'dropped' needs input.person, the column with the person "
                "of each trip"
            )
        if not privacy.infinite:
            if is_stability and privacy.epsilon is None:
                refuse("privacy.epsilon is missing; the stability histogram needs it and delta")
            if privacy.epsilon is None and privacy.rho is None:
                refuse("privacy needs epsilon and delta, or rho")
        if privacy.neighbors == "unbounded" and privacy.total == "invariant":
            refuse(
                "privacy.total cannot be invariant when neighbours add or remove a person; "
                "remove it, or set privacy.neighbors = 'bounded'"
            )
        if privacy.neighbors == "bounded" and privacy.trips_per_person > 1 and not privacy.total:
            refuse(
                "privacy.total is missing: say 'invariant' if every person makes exactly "
                f"{privacy.trips_per_person} trips, or 'measured' if that is the most"
            )
