"""The statement of a guarantee, derived from the settings that ran: the neighbours, the losses, in
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..ledger.accounting import (
    BOUNDED,
    ONE_OF_SEVERAL,
    PURE_DP,
    SEVERAL_RECORDS,
    TWO_RECORDS,
    UNBOUNDED,
    UNBOUNDED_OF_SEVERAL,
    Guarantee,
    compose,
    epsilon_simple,
)
from ..ledger.plan import UniversePlan
from ..pages.document import Table
from ..pages.numbers import format_delta, format_epsilon, format_rho


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


def describe_statement(statement: Statement) -> tuple[str, ...]:
    """Whose data are protected and how well, in few sentences with rounded numbers."""
    return (*statement.protected, summarise_statement(statement))


def losses_table(losses: Sequence[UniversePlan]) -> Table:
    """UniversePlan of every part: natively, as epsilon, and as bounded zCDP per person."""
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
