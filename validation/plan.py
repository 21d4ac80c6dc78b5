"""The plan of a run, `plan/plan.json`, read and checked apart from the code that wrote it.

Each product computes its expected measurements from the run's settings and public files in its
folder, as a `Plan` of its own. This module adds the rest by its own arithmetic, a measure's noise
from its loss and from the largest change by one person, rho per person from a guarantee; and
compares the file with it, field by field. docs/plan.schema.json has the form of the file.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.optimize import minimize_scalar

from .outcome import Failures, UnusableRunFile
from .run_files import parse_fraction, read_json

_LARGE = 100
"""Above this sigma^2 the variance of the discrete Gaussian differs from it by less than a float: by
Poisson's summation formula by less than exp(-2 pi^2 sigma^2)."""


@lru_cache(maxsize=1 << 12)
def gaussian_variance(sigma_squared: Fraction | float) -> float:
    """Variance of the discrete Gaussian, P(x) ~ exp(-x^2 / (2 sigma^2)) on the integers.

    >>> round(gaussian_variance(Fraction(1, 4)), 4)
    0.215
    """
    wide = float(sigma_squared)
    if wide > _LARGE:
        return wide
    weights = [math.exp(-(x**2) / (2 * wide)) for x in range(1, 1000)]
    return 2 * math.fsum(x**2 * w for x, w in enumerate(weights, 1)) / (1 + 2 * math.fsum(weights))


def laplace_variance(scale: Fraction | float) -> float:
    """Variance of the discrete Laplace, P(x) ~ exp(-|x| / scale) on the integers."""
    rate = 1 / float(scale)
    return 2 * math.exp(-rate) / math.expm1(-rate) ** 2


def rho_of(epsilon: Fraction, delta: Fraction, *, is_tight: bool = False) -> Fraction:
    """The largest rho within epsilon at delta, to 50 digits: by the simple bound
    rho + 2 sqrt(rho log(1 / delta)), or by the tight one.

    >>> round(float(rho_of(Fraction(1), Fraction(1, 10**8))), 12)
    0.013215362853
    """
    with localcontext() as context:
        context.prec = 50
        of, log = (Decimal(own.numerator) / own.denominator for own in (epsilon, delta))
        log = -log.ln()
        if not is_tight:
            return Fraction((of / ((log + of).sqrt() + log.sqrt())) ** 2)

        def rho(excess: Decimal) -> Decimal:
            alpha = 1 + excess
            return (of - (log - excess.ln() + alpha * (1 - 1 / alpha).ln()) / excess) / alpha

        at = minimize_scalar(
            lambda x: -float(rho(Decimal(math.exp(x)))), bounds=(-15, 25), method="bounded"
        ).x
        return Fraction(rho(Decimal(math.exp(at))))


PLAN = Path("plan") / "plan.json"
_ANSWERS = ["geocode", "query_name", "value", "variance", "plb"]
VERSION = 1
REPORT_DELTA = Fraction(1, 10**10)
GAUSSIAN, LAPLACE = "discrete_gaussian", "discrete_laplace"
UNBOUNDED = ("unbounded", "unbounded_one_of_several")
OF_ONE = ("bounded", "bounded_one_of_several")
"""Changes with the same guarantee as one changed record."""


@dataclass(frozen=True)
class Measure:
    """The answers to a query in areas of a level; no loss is no noise."""

    universe: str
    level: str
    query: str
    part: str
    areas: int | None
    answers: int | None
    share: Fraction
    loss: Fraction | None
    moved: int | None
    mechanism: str = GAUSSIAN

    @property
    def parameter(self) -> Fraction | None:
        """The noise for the loss and the largest change by one person: sigma squared, or scale."""
        if self.loss is None or self.moved is None:
            return None
        return self.moved / (2 * self.loss if self.mechanism == GAUSSIAN else self.loss)

    @property
    def variance(self) -> float | None:
        """Variance of the noise; raises UnusableRunFile for an unknown mechanism."""
        return None if self.parameter is None else variance_of(self.mechanism, self.parameter)


@dataclass(frozen=True)
class Guarantee:
    """Guarantee of a universe, and the rho per person that follows from it.

    epsilon-DP is epsilon^2 / 2-zCDP. Changing one person is removing one and adding one: four times
    the rho by group privacy, twice for counts as those of SafeTab-P, by Theorem 2 of
    [SafeTabP2025].
    """

    universe: str
    change: str
    loss: Fraction
    mechanism: str = GAUSSIAN
    delta: Fraction = Fraction(0)
    bounded_factor: Fraction = Fraction(4)
    stated_factor: Fraction | None = None
    epsilon_delta: Fraction = REPORT_DELTA

    @property
    def definition(self) -> str:
        """The kind of differential privacy."""
        pure = "approximate" if self.delta else "pure"
        return pure if self.mechanism == LAPLACE else "zcdp"

    @property
    def neighbours(self) -> str:
        """Whether neighbours have equally many records."""
        return "unbounded" if self.change in UNBOUNDED else "bounded"

    @property
    def rho(self) -> Fraction:
        """Rho of the loss itself."""
        return self.loss**2 / 2 if self.mechanism == LAPLACE else self.loss

    @property
    def charged_rho(self) -> Fraction:
        """Rho of the change that is charged."""
        if self.change in OF_ONE:
            return self.rho
        if self.mechanism == LAPLACE and self.change != "several_records":
            return 4 * self.rho
        return self.rho * (2 if self.change == "unbounded_one_of_several" else self.bounded_factor)

    @property
    def stated_rho(self) -> Fraction:
        """Rho of the largest change of one person."""
        if self.stated_factor is not None:
            return self.rho * self.stated_factor
        is_one_of_several = self.change.endswith("one_of_several")
        return self.charged_rho * (self.bounded_factor if is_one_of_several else 1)


DERIVED: Mapping[type, tuple[str, ...]] = {
    Measure: ("parameter", "variance"),
    Guarantee: ("definition", "neighbours", "charged_rho", "stated_rho"),
}
"""What `plan.json` has of measures and guarantees that follows from the rest."""


@dataclass(frozen=True)
class Plan:
    """Measurements and guarantees of a run.

    stated : the guarantees of the parts that the statement names.
    exact : facts released without noise, by subject.
    inputs : names of the public files that decide the draws, including the settings.
    counts : names of the confidential files that are measured.
    """

    product: str
    measures: tuple[Measure, ...]
    guarantees: tuple[Guarantee, ...]
    stated: tuple[Guarantee, ...]
    exact: tuple[str, ...]
    inputs: frozenset[str]
    counts: tuple[str, ...]
    are_disjoint: bool = False


def variance_of(mechanism: str, parameter: Fraction) -> float:
    """Variance of noise; raises UnusableRunFile for an unknown mechanism."""
    if mechanism not in (GAUSSIAN, LAPLACE):
        raise UnusableRunFile(f"{PLAN} has a mechanism {mechanism}")
    return gaussian_variance(parameter) if mechanism == GAUSSIAN else laplace_variance(parameter)


def check_plan(root: Path, wanted: Plan, settings: Mapping[str, Any], failures: Failures) -> None:
    """The plan of the run below `root` is the one that its settings and public files ask for.

    To be called before noise is drawn too. Raises UnusableRunFile for a plan of another form.
    """
    content = read_content(root)
    found = _plan_of(content)
    why_not = not_private_reason(settings)
    if content["version"] != VERSION or content["statement"]["why_not"] != why_not:
        failures.add("the plan is of another version, or says otherwise whether it is private")
    if content["dataset"] != settings["privacy"]["dataset"]:
        failures.add("the plan's dataset differs from the settings")
    for name in ("product", "exact", "inputs", "counts", "are_disjoint"):
        if getattr(found, name) != getattr(wanted, name):
            failures.add(f"the plan's {name} differ from the settings")
    _compare(found.measures, wanted.measures, "measures", failures)
    for kind in ("guarantees", "stated"):
        due = getattr(wanted, kind) if why_not is None else ()
        _compare(getattr(found, kind), due, kind, failures)
    records: list[tuple[Measure | Guarantee, Mapping[str, Any]]] = [
        *zip(found.measures, content["measures"], strict=True),
        *zip(found.guarantees, content["guarantees"], strict=True),
        *zip(found.stated, content["statement"]["losses"], strict=True),
    ]
    for own, stored in records:
        for name in DERIVED[type(own)]:
            due, value = getattr(own, name), stored[name]
            is_same = value == (None if due is None else str(due))
            if isinstance(due, float):
                is_same = value is not None and math.isclose(due, value, rel_tol=1e-9)
            if not is_same:
                of = own.part if isinstance(own, Measure) else own.universe
                failures.add(f"the plan's {name} of {of} does not follow from its loss")
    for name, digest in content["inputs"].items():
        if not (root / name).is_file() or sha256(root / name) != digest:
            failures.add(f"{name} is not the file that the plan was made from")


def check_sums(root: Path, failures: Failures) -> None:
    """For every universe whose measures are no alternatives, check that shares and losses add
    up."""
    found = read_plan(root)
    for universe in {own.universe for own in found.measures}:
        own = [measure for measure in found.measures if measure.universe == universe]
        if sum(measure.share for measure in own) != 1:
            failures.add(f"the shares of {universe} do not add to 1")
        spent = sum(measure.loss or 0 for measure in own)
        if any(due.loss != spent for due in found.guarantees if due.universe == universe):
            failures.add(f"the losses of {universe} do not add to its guarantee's")


def check_measured(
    root: Path, universe: str, regions: Mapping[str, Sequence[str]], failures: Failures
) -> None:
    """Each level of a universe has one file, with every query of the plan in every region once, and
    with the variance and the loss of the plan.
    """
    levels: dict[str, dict[str, Measure]] = {}
    for own in read_plan(root).measures:
        if own.universe == universe and own.areas:
            levels.setdefault(own.level, {})[f"{own.query}_dpq"] = own
    folder = root / "measurements" / universe
    due = {answers_file(root, universe, level) for level in levels}
    if {path for path in folder.rglob("*") if path.is_file()} != due:
        failures.add(f"the files of measurements of {universe} are not one for each level")
    for level, queries in levels.items():
        table = pq.read_table(answers_file(root, universe, level), columns=_ANSWERS)
        if set(table["query_name"].unique().to_pylist()) != set(queries):
            failures.add(f"level {level} was measured by other queries than the plan has")
        for name, own in queries.items():
            rows, where = table.filter(pc.equal(table["query_name"], name)), f"{name} of {level}"
            loss = "inf" if own.loss is None else str(own.loss)
            n_values = (own.answers or 0) // (own.areas or 1)
            if rows["geocode"].to_pylist() != list(regions[level]):
                failures.add(f"{where} is not measured once in each region")
            if not pc.all(pc.equal(pc.list_value_length(rows["value"]), n_values)).as_py():
                failures.add(f"{where} does not have {n_values} values")
            if rows["plb"].unique().to_pylist() != [loss]:
                failures.add(f"{where} does not cost {loss}")
            if not np.allclose(rows["variance"].to_numpy(), own.variance or 0, rtol=1e-9, atol=0):
                failures.add(f"{where} does not have the variance of its noise")


def answers_file(root: Path, universe: str, level: str) -> Path:
    """The measurements of a level that is measured in one piece."""
    return root / "measurements" / universe / level / "dpqueries" / "00000.parquet"


def read_plan(root: Path) -> Plan:
    """Read the plan of a run; raise UnusableRunFile if it is missing or of another form."""
    return _plan_of(read_content(root))


def read_content(root: Path) -> dict[str, Any]:
    """Read all of `plan.json`; raise UnusableRunFile if it is missing."""
    if not (root / PLAN).exists():
        raise UnusableRunFile(
            f"{PLAN} is missing; runs charged by version 0.2 have no plan, and are finished by "
            "that version"
        )
    return read_json(root, PLAN)


def not_private_reason(settings: Mapping[str, Any]) -> str | None:
    """Reason why a run with these settings protects no one, None if it does protect."""
    if settings["privacy"].get("infinite", False):
        return "noise was switched off"
    if settings["privacy"].get("seed") is not None:
        return "noise can be repeated from the seed in the settings"
    if settings.get("mechanism", {}).get("calibration") == "published":
        return "noise has the published scale, which need not cover what a person can change"
    return None


def sha256(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compare(found: Iterable[Any], wanted: Iterable[Any], what: str, failures: Failures) -> None:
    """Both are the same, in any order; else the first that differs is named, and in which field."""
    unknown, lacking = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
    for one in unknown:
        name = getattr(one, "part", one.universe)
        like = [own for own in lacking if getattr(own, "part", own.universe) == name]
        names = [own.name for own in fields(one)] if like else []
        differing = [key for key in names if getattr(one, key) != getattr(like[0], key)]
        known = f"has another {', '.join(differing)} than" if like else "is not in"
        failures.add(f"of the plan's {what}, {name} {known} the settings")
    if lacking.total() > unknown.total():
        failures.add(f"the plan lacks {what} of the settings")


def _plan_of(content: Mapping[str, Any]) -> Plan:
    try:
        statement = content["statement"]
        return Plan(
            content["product"],
            tuple(_record(Measure, own) for own in content["measures"]),
            tuple(_record(Guarantee, own) for own in content["guarantees"]),
            tuple(_record(Guarantee, own) for own in statement["losses"]),
            tuple(own["subject"] for own in content["exact"]),
            frozenset(content["inputs"]),
            tuple(content["counts"]),
            statement["are_disjoint"],
        )
    except (KeyError, TypeError, AttributeError):
        raise UnusableRunFile(f"{PLAN} is not a plan") from None


def _record(kind: type[Any], content: Mapping[str, Any]) -> Any:
    """A record of the plan, fractions parsed; raises TypeError for other fields than its own."""
    is_fraction = {own.name for own in fields(kind) if "Fraction" in str(own.type)}
    return kind(
        **{
            key: parse_fraction(value) if key in is_fraction and value is not None else value
            for key, value in content.items()
            if key not in (*DERIVED[kind], "protected")
        }
    )
