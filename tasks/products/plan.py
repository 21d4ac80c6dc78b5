"""The plan of a run: its measures, their noise and its guarantee, also in words; one public file.

A product makes its plan from settings and public areas. What is common to all products is derived
here: the file `plan/plan.json`, the reasons for a charge, and the loss that a margin needs.
docs/plan.schema.json has the form of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...validation.outcome import Failures
from ...validation.run_files import unusable_files_fail
from ..ledger.accounting import (
    BOUNDED,
    ONE_OF_SEVERAL,
    PURE_DP,
    SEVERAL_RECORDS,
    TWO_RECORDS,
    UNBOUNDED,
    UNBOUNDED_OF_SEVERAL,
    ZCDP,
    Guarantee,
    compose,
    epsilon_simple,
)
from ..ledger.plan import Measure, UniversePlan
from ..noise.distributions import Noise
from ..noise.quantiles import COVERAGE, loss_for_margin
from ..pages.document import Table
from ..pages.numbers import format_delta, format_epsilon, format_rho
from ..runs.directory import RunDirectory, digests_by_name
from ..runs.errors import BudgetRefused, InputRefused, refuse_errors
from ..runs.files import read_record, write_record
from ..runs.names import did_you_mean
from ..runs.settings import ProductSettings
from .budget import Cost
from .privacy_curves import Curves

VERSION = 1
"""Version of the form of `plan.json`."""

MOST_NAMED = 8
"""Measures that a refusal of a target names."""


_UNBOUNDED = (UNBOUNDED, UNBOUNDED_OF_SEVERAL)
_CHANGES = {
    BOUNDED: "one record changed",
    UNBOUNDED: "one record added or removed",
    UNBOUNDED_OF_SEVERAL: (
        "one record added or removed; a person's change may change several, as stated"
    ),
    ONE_OF_SEVERAL: "one record changed; a person's change may change several, as stated",
    SEVERAL_RECORDS: "one record changed; a person's change changes several",
    TWO_RECORDS: "one record changed; a person's change changes two",
}


@dataclass(frozen=True)
class ExactFact:
    """A fact that is public by declaration and released without noise."""

    subject: str
    fact: str


@dataclass(frozen=True)
class Statement:
    """The guarantee of a run.

    why_not : why it guarantees nothing, as a clause; None if it does guarantee.
    protected : whose data are protected, as sentences that begin with a capital.
    change : between which two tables the guarantee holds, as sentences.
    losses : privacy losses of the parts.
    together : how the parts' losses combine, in a sentence; empty for one part.
    are_disjoint : whether one record is in one part at most, so that the largest loss covers all
        parts together.
    unprotected : sentences on further data without protection, in addition to exact facts.
    """

    why_not: str | None
    protected: tuple[str, ...]
    change: tuple[str, ...]
    losses: tuple[UniversePlan, ...] = ()
    together: str = ""
    are_disjoint: bool = False
    unprotected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The measures of a run, and its guarantee.

    universes : the measures of each; one draw of the ledger each.
    statement : the guarantee in words, and the cost of each part of it.
    inputs : digests of the public files that, with the settings, decide the draws, by name.
    counts : names of the confidential files that are measured.

    Not in the file of a plan:

    costs : the cost of each part that reports name.
    curves : makes the privacy curves of the parts; None without a guarantee.
    coverage : the probability with which a margin of a target holds the truth.
    """

    product: str
    dataset: str
    universes: tuple[UniversePlan, ...]
    statement: Statement
    exact: tuple[ExactFact, ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[str, ...] = ()
    costs: tuple[Cost, ...] = ()
    curves: Callable[[], Curves | None] = lambda: None
    coverage: Fraction = COVERAGE

    @classmethod
    def of(
        cls,
        settings: ProductSettings,
        costs: Iterable[Cost],
        statement: Statement,
        exact: Iterable[ExactFact],
        universes: Iterable[UniversePlan] | None = None,
        question: str = "",
        **further: Any,
    ) -> Plan:
        """The plan of settings, with one draw for each cost if `universes` are not given.

        A statement without losses takes the losses of the costs. Settings that are not private
        guarantee nothing. If there is a `question` (see `Curves`), the plan's curves are those of
        the costs.
        """
        costs = tuple(costs)
        if question:
            further["curves"] = lambda: _curves_of(costs, question)
        measured = tuple(cost.plan for cost in costs)
        if settings.why_not_private is not None:
            statement = Statement(settings.why_not_private, (), (), ())
        elif not statement.losses:
            statement = replace(statement, losses=measured)
        return cls(
            settings.PRODUCT,
            settings.privacy.dataset,
            measured if universes is None else tuple(universes),
            statement,
            tuple(exact),
            costs=costs,
            **further,
        )

    def decided_by(
        self, run: RunDirectory, files: Iterable[Path], counts: Iterable[Path] = ()
    ) -> Plan:
        """The plan of a run, determined by these public files, that measures these counts."""
        return replace(
            self,
            inputs=digests_by_name(run, files),
            counts=tuple(path.relative_to(run.root).as_posix() for path in counts),
        )

    def protected(self, number: int) -> tuple[str, ...]:
        """The records protected by the guarantee of a universe, as sentences."""
        found = self.statement.protected
        return (found[number],) if len(found) == len(self.universes) else found

    def to_json(self) -> dict[str, Any]:
        """The content of `plan.json`; fractions as strings."""
        is_private = self.statement.why_not is None
        return {
            "version": VERSION,
            "product": self.product,
            "dataset": self.dataset,
            "measures": [
                _measure_to_json(universe, measure)
                for universe in self.universes
                for measure in universe.measured
            ],
            "guarantees": [
                _guarantee_to_json(own, self.protected(number))
                for number, own in enumerate(self.universes if is_private else ())
            ],
            "statement": {
                **vars(self.statement),
                "losses": [*map(_guarantee_to_json, self.statement.losses)],
            },
            "exact": [{"subject": own.subject, "fact": own.fact} for own in self.exact],
            "inputs": dict(self.inputs),
            "counts": list(self.counts),
        }


def _curves_of(costs: Iterable[Cost], question: str) -> Curves | None:
    """The curves of the costs; None if one has no guarantee."""
    known = {cost.plan.universe: cost for cost in costs}
    if any(cost.plan.guarantee is None for cost in known.values()):
        return None
    rhos = {name: cost.plan.promised.rho_per_record for name, cost in known.items()}
    return Curves(rhos, {name: cost.curve for name, cost in known.items()}, question)


def plan_file(run: RunDirectory) -> Path:
    """Path of a run's plan."""
    return run.root / "plan" / "plan.json"


def write_plan(run: RunDirectory, plan: Plan) -> None:
    """Write the plan of a run."""
    plan_file(run).parent.mkdir(exist_ok=True)
    write_record(plan_file(run), plan.to_json())


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run from its file, without curves."""
    content = read_record(plan_file(run))
    guaranteed = {own["universe"]: own for own in content["guarantees"]}
    measures: dict[str, list[Mapping[str, Any]]] = {name: [] for name in guaranteed}
    for own in content["measures"]:
        measures.setdefault(own["universe"], []).append(own)
    # Statements of version 0.3 have no `unprotected`.
    stated: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in content["statement"].items()
    }
    stated["losses"] = tuple(_universe_of(own) for own in stated["losses"])
    return Plan(
        content["product"],
        content["dataset"],
        tuple(_universe_of(guaranteed.get(name), own) for name, own in measures.items()),
        Statement(**stated),
        tuple(ExactFact(**own) for own in content["exact"]),
        content["inputs"],
        tuple(content["counts"]),
    )


def _measure_to_json(universe: UniversePlan, measure: Measure) -> dict[str, Any]:
    loss, noise = universe.loss, measure.noise
    return {
        "universe": universe.universe,
        "level": measure.level,
        "query": measure.query,
        "part": measure.part,
        "areas": measure.areas,
        "answers": measure.answers,
        "mechanism": universe.mechanism,
        "parameter": None if noise is None else str(noise.parameter),
        "variance": None if noise is None else noise.variance,
        "share": str(measure.share),
        "loss": None if loss is None else str(loss * measure.share),
        "moved": measure.moved,
    }


def _measure_of(content: Mapping[str, Any]) -> Measure:
    noise = None
    if content["parameter"] is not None:
        noise = Noise(content["mechanism"], Fraction(content["parameter"]))
    same = {name: content[name] for name in ("part", "level", "query", "moved", "areas", "answers")}
    return Measure(noise=noise, share=Fraction(content["share"]), **same)


def _guarantee_to_json(universe: UniversePlan, protected: Iterable[str] = ()) -> dict[str, Any]:
    own = universe.promised
    is_unbounded = own.neighbors in _UNBOUNDED
    definition = "zcdp" if own.definition == ZCDP else "approximate" if own.delta else "pure"
    return {
        "universe": universe.universe,
        "definition": definition,
        "neighbours": "unbounded" if is_unbounded else "bounded",
        "change": own.neighbors,
        "loss": str(own.parameter),
        "delta": str(own.delta),
        "charged_rho": str(own.bounded_rho),
        "stated_rho": str(own.stated_rho),
        "bounded_factor": str(own.bounded_factor),
        "stated_factor": None if own.stated_factor is None else str(own.stated_factor),
        "mechanism": universe.mechanism,
        "epsilon_delta": str(universe.delta),
        "protected": list(protected),
    }


def _universe_of(
    content: Mapping[str, Any] | None, measures: Sequence[Mapping[str, Any]] = ()
) -> UniversePlan:
    """A universe from its guarantee and its measures, of which a run without a guarantee has the
    latter alone."""
    own = tuple(map(_measure_of, measures))
    if content is None:
        first = measures[0]
        loss = None if first["loss"] is None else Fraction(first["loss"]) / own[0].share
        return UniversePlan(first["universe"], first["mechanism"], None, loss, own)
    factor = content["stated_factor"]
    guarantee = Guarantee(
        ZCDP if content["definition"] == "zcdp" else PURE_DP,
        Fraction(content["loss"]),
        content["change"],
        Fraction(content["delta"]),
        Fraction(content["bounded_factor"]),
        None if factor is None else Fraction(factor),
    )
    return UniversePlan(
        content["universe"],
        content["mechanism"],
        guarantee,
        guarantee.parameter,
        own,
        Fraction(content["epsilon_delta"]),
    )


def combine_parts(statement: Statement) -> UniversePlan:
    """The loss of all parts together; for a single part, or disjoint parts, the largest loss of a
    part.

    Parts under pure differential privacy between the same neighbours add their epsilons; all
    others add as bounded zCDP per person (`ledger.accounting.compose`). Raises ValueError for a
    statement that guarantees nothing.
    """
    if not statement.losses:
        raise ValueError("a statement without losses guarantees nothing")
    losses = statement.losses
    if len(losses) == 1 or statement.are_disjoint:
        return max(losses, key=lambda loss: loss.promised.bounded_rho)
    guarantees = [loss.promised for loss in losses]
    names = " and ".join(loss.universe for loss in losses)
    delta = max(loss.delta for loss in losses)
    # One of several records is one record, as in all bounded guarantees.
    neighbors = {BOUNDED if g.neighbors == ONE_OF_SEVERAL else g.neighbors for g in guarantees}
    if {g.definition for g in guarantees} == {PURE_DP} and len(neighbors) == 1:
        total = sum((g.parameter for g in guarantees), Fraction(0))
        own = sum((g.delta for g in guarantees), Fraction(0))
        together = Guarantee(PURE_DP, total, neighbors.pop(), own)
    else:
        together = compose(guarantees)
    return UniversePlan(names, losses[0].mechanism, together, together.parameter, delta=delta)


def least_charge(statement: Statement) -> Guarantee:
    """Least charge of all parts in the ledger, as bounded zCDP per person, deltas added.

    For disjoint parts, the charge of the part with the largest loss.
    """
    guarantees = [loss.promised for loss in statement.losses]
    if statement.are_disjoint and guarantees:
        guarantees = [max(guarantees, key=lambda guarantee: guarantee.bounded_rho)]
    return compose(guarantees)


def summarise_statement(statement: Statement) -> str:
    """The joint guarantee of all parts, in one sentence with rounded numbers.

    >>> from spineflow.tasks.ledger.accounting import ZCDP
    >>> loss = UniversePlan("persons", "discrete_gaussian", Guarantee(ZCDP, Fraction(1, 2)))
    >>> summarise_statement(Statement(None, (), (), (loss,)))[:66]
    'Guarantee: changing one record of persons changes the probability '
    """
    if statement.why_not is not None:
        return f"Nothing is guaranteed: {statement.why_not}."
    loss = combine_parts(statement)
    guarantee = loss.promised
    epsilon, delta = format_epsilon(loss.epsilon), loss.whole_delta
    exact = f"epsilon {epsilon}"
    if not loss.is_pure:
        exact += f" at delta {format_delta(delta)}, from a rho of {float(guarantee.parameter):.4g}"
    change = "adding or removing" if guarantee.neighbors in _UNBOUNDED else "changing"
    whose = "one record of each of" if " and " in loss.universe else "one record of"
    parts = "any part" if statement.are_disjoint and len(statement.losses) > 1 else loss.universe
    chance = f", except with probability {format_delta(delta)}" if delta else ""
    return (
        f"Guarantee: {change} {whose} {parts} changes the probability of any release by a factor "
        f"of at most e^{epsilon}{chance} ({exact})."
    )


def losses_table(losses: Sequence[UniversePlan]) -> Table:
    """The loss of every part: natively, as epsilon, and as bounded zCDP per person."""
    return Table.of([_row(loss) for loss in losses], "epsilon")


def _row(loss: UniversePlan) -> dict[str, str | None]:
    guarantee = loss.promised
    if loss.is_pure:
        native, tight, simple = f"epsilon {guarantee.parameter}", str(guarantee.parameter), None
    else:
        native, tight = f"rho {format_rho(guarantee.parameter)}", format_epsilon(loss.epsilon)
        simple = format_epsilon(epsilon_simple(guarantee.parameter, loss.delta))
    return {
        "part": loss.universe,
        "mechanism": loss.mechanism.replace("_", " "),
        "neighbours": _CHANGES[guarantee.neighbors],
        "guarantee": native,
        "own delta": format_delta(guarantee.delta),
        "epsilon": tight,
        "epsilon (simple)": simple,
        "at delta": format_delta(loss.whole_delta),
        "rho of bounded zCDP per person": format_rho(guarantee.bounded_rho),
    }


def explain_charges(plan: Plan) -> Iterator[str]:
    """For each universe charged more than the rho of one record, a sentence with the reason."""
    for number, universe in enumerate(plan.universes):
        if universe.guarantee is None:
            continue
        charged, change = universe.guarantee.bounded_rho, plan.statement.change
        if charged != universe.guarantee.rho_per_record:
            why = change[number] if len(change) == len(plan.universes) else " ".join(change)
            yield (
                f"{universe.universe}: the ledger is charged rho {format_rho(charged)}, for the "
                f"largest change. {why}"
            )


def needed_losses(plan: Plan, target: str, margin: int) -> Iterator[str]:
    """Sentences with the losses at which the answers of a target have a margin of error.

    A target names measures by their level, or more closely by universe, level, query or part,
    separated by colons. Raises InputRefused for a target that names nothing, for a plan without
    noise, and for a margin that cannot be met.
    """
    for universe, measure in _find_measures(plan, target):
        if measure.noise is None or universe.loss is None:
            raise InputRefused(f"--target {target}: without noise every margin is 0.")
        with refuse_errors(f"--target {target}: "):
            total = loss_for_margin(measure.noise, universe.loss, margin, coverage=plan.coverage)
        own = ""
        if measure.share != 1:
            cost, now = (float(loss * measure.share) for loss in (total, universe.loss))
            own = f"; these answers then cost {cost:.6g} of it (now {now:.6g})"
        yield (
            f"An answer to {measure.query} at {measure.level} is within {margin} of the truth, but "
            f"for post-processing, with a probability of {float(100 * plan.coverage):g} % at "
            f"{universe.symbol} {float(total):.6g} and these shares (now "
            f"{float(universe.loss):.4g}){own}"
        )


def _find_measures(plan: Plan, target: str) -> list[tuple[UniversePlan, Measure]]:
    """The measures of a plan that a target names; raises InputRefused without any."""
    measures = [(cost.plan, own) for cost in plan.costs for own in cost.plan.measured]
    words = {_plain(word) for word in target.split(":")}
    for names in (_names, _words):
        found = [(own, measure) for own, measure in measures if words <= names(own, measure)]
        if found:
            return found
    known = list(dict.fromkeys(f"{u.universe}:{own.level}:{own.query}" for u, own in measures))
    raise InputRefused(
        f"--target {target}: name a measured level, or universe, level and query"
        f"{did_you_mean(target, known)}; there are {', '.join(known[:MOST_NAMED])}"
        f"{', ...' if len(known) > MOST_NAMED else ''}."
    )


def _names(universe: UniversePlan, measure: Measure) -> set[str]:
    """Names of a measure, for targets."""
    names = (universe.universe, measure.level, measure.query, measure.part)
    return {_plain(name) for name in names}


def _words(universe: UniversePlan, measure: Measure) -> set[str]:
    """All words in the names of a measure, and the numbers of its part."""
    text = f"{measure.query} {measure.part}"
    words = text.replace(",", " ").replace("/", " ").split()
    numbers = (str(int(digits)) for digits in re.findall(r"\d+", measure.part))
    return {*_names(universe, measure), *map(_plain, words), *numbers}


def _plain(name: str) -> str:
    """The form of a name for comparisons: without spaces, a query's attributes in order."""
    return "*".join(sorted("".join(part.split()).lower() for part in name.split("*")))


def refuse_other_noise(check: Callable[[Failures], None]) -> None:
    """Raise BudgetRefused, before any noise is drawn, if a check by independent code fails.

    `check` recomputes the draws and their cost from the run's files.
    """
    failures = Failures()
    with unusable_files_fail(failures):
        check(failures)
    if failures.count:
        raise BudgetRefused(f"{failures.texts[0]}; start a new run, since nothing was drawn.")
