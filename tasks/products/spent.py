"""Spending of a dataset so far, by its ledger: the same figures as `spineflow ledger`.

The charge of a run that would begin now, and the answer of its ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..ledger.accounting import ZCDP, Guarantee
from ..ledger.caps import caps_of, check_caps, summary
from ..ledger.charging import missing_cap_warning, uncharged_message
from ..ledger.spending import Spending, SpentDraw, spending_of
from ..ledger.store import ledger_at, open_ledger, reading
from ..pages.document import Table
from ..pages.numbers import format_delta, format_epsilon, format_rho, format_upper_bound
from ..runs.errors import BudgetRefused
from ..runs.settings import ProductSettings
from .plan import Plan, Statement, explain_charges, least_charge


def dataset_spending(
    settings: ProductSettings, own: Mapping[str, Statement], *, is_exact: bool = False
) -> Mapping[str, Any] | None:
    """All draws from the dataset of these settings, as in `summary`; None without a charge.

    `own` are the statements of the runs, by their ids, whose draws must be among them; `is_exact`
    whether the epsilon by the exact curve is computed too. Raises BudgetRefused if the ledger
    cannot be used, or has less for one of these runs than it states.
    """
    if not settings.draws_noise or not settings.is_private:
        return None
    ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
    name = settings.privacy.dataset
    spent = summary(ledger, is_exact=is_exact, only=name)["datasets"].get(name, {"products": {}})
    for run_id, statement in own.items():
        if not _covers_statement(spent, run_id, statement):
            raise BudgetRefused(uncharged_message(ledger, run_id))
    found: Mapping[str, Any] = spent
    return found


def spent_in_brief(settings: ProductSettings) -> str:
    """The budget spent by the dataset of these settings, and the rest of its cap of rho."""
    if not settings.draws_noise:
        return "This run drew no noise: it read measurements that are published already."
    if not settings.is_private:
        return "This run is not private, and was charged to no ledger."
    name = settings.privacy.dataset
    try:
        ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
        spent = summary(ledger, only=name)["datasets"][name]
    except BudgetRefused:
        # A report may be written anew on a machine that does not have the ledger.
        return f"The ledger with the losses of the dataset {name} is not here."
    words = f"The dataset {name} has spent rho {float(Fraction(spent['rho'])):.4g} by now"
    if spent["cap"] is None:
        return f"{words}; its ledger sets no cap."
    cap, left = (float(Fraction(spent[name])) for name in ("cap", "remaining"))
    return f"{words}, of a cap of {cap:.4g}; {left:.4g} remain for further releases."


def draws_table(spent: Mapping) -> Table:
    """All draws from a dataset of `summary`, in their native guarantee and as bounded zCDP."""
    headers = ("product", "run", "draw", "guarantee", "neighbours", "own delta", "bounded rho")
    rows = tuple(
        (
            product,
            draw["run_id"],
            draw["name"],
            f"{'epsilon' if draw['definition'] == 'pure_dp' else 'rho'} {draw['parameter']}",
            draw["neighbors"],
            format_delta(draw["delta"]),
            format_rho(draw["bounded_rho"]),
        )
        for product, drawn in spent["products"].items()
        for draw in drawn["draws"]
    )
    return Table(headers, rows, "bounded rho")


def _covers_statement(spent: Mapping, run_id: str, statement: Statement) -> bool:
    """Whether a dataset's spending covers at least the statement of a run."""
    draws = [draw for drawn in spent["products"].values() for draw in drawn["draws"]]
    of_run = [draw for draw in draws if draw["run_id"] == run_id]
    rho = sum((Fraction(draw["bounded_rho"]) for draw in of_run), Fraction(0))
    delta = sum((Fraction(draw["delta"]) for draw in of_run), Fraction(0))
    stated = least_charge(statement)
    return bool(of_run) and rho >= stated.parameter and delta >= stated.delta


def caps_words(spent: Mapping[str, Any]) -> str:
    """The caps of a dataset, or the default caps, of `summary`; empty without any."""
    caps = [
        f"{name} {show(spent[key])}"
        for name, key, show in (("rho", "cap", format_rho), ("delta", "delta_cap", format_delta))
        if spent[key] is not None
    ]
    if (cap := spent["epsilon_cap"]) is not None:
        planned = ", of runs planned beforehand" if cap["planned"] else ""
        epsilon = format_epsilon(float(Fraction(cap["epsilon"])))
        caps.append(f"epsilon {epsilon} at delta {format_delta(cap['delta'])}{planned}")
    return " and ".join(caps)


def composed_sentence(spent: Mapping[str, Any]) -> str:
    """The composed loss of a dataset of `summary`, in words, and its caps."""
    epsilon, caps = spent["epsilon"], caps_words(spent)
    exact = ""
    if epsilon["exact"] is not None:
        bound = format_upper_bound(epsilon["exact"])
        exact = f", and {bound} by the exact curve, of runs planned beforehand"
    capped = f"the cap is {caps}" if caps else "no cap is set"
    return (
        f"Together, as bounded zCDP per person: rho {format_rho(spent['rho'])}, the mechanisms' "
        f"own delta {format_delta(spent['delta'])}; that is epsilon "
        f"{format_epsilon(epsilon['tight'])} (simple conversion "
        f"{format_epsilon(epsilon['simple'])}) at delta "
        f"{format_delta(epsilon['delta'])}{exact}; {capped}.{stated_sentence(spent)}"
    )


def stated_sentence(spent: Mapping[str, Any]) -> str:
    """Sentence on a dataset's spending on all records that a person's change may change, where
    it is more than the charge; empty otherwise.
    """
    if spent["stated_rho"] == spent["rho"]:
        return ""
    return (
        " That counts one record of each draw; over all records that one person's change may "
        f"change, rho is {format_rho(spent['stated_rho'])}."
    )


def new_charge(plans: Mapping[str, Plan], settings: ProductSettings) -> Iterator[str]:
    """Sentences on the charge of a new run of these settings, by the plans of its products, the
    reason why it exceeds the sum of the budgets, and the remainder of the dataset's cap.

    A mechanism's own delta is left to the run. Raises BudgetRefused where the run would be refused.
    """
    draws = {
        f"{name} {drawn.universe}".strip(): SpentDraw(
            Guarantee(ZCDP, drawn.promised.bounded_rho), drawn.curve
        )
        for name, plan in plans.items()
        for drawn in plan.universes
    }
    if not draws:
        return
    dataset, ledger = settings.privacy.dataset, ledger_at(Path(settings.privacy.ledger))
    needed = Spending([*draws.values()]).total.parameter
    of_each = ", ".join(
        f"{name} {float(own.guarantee.parameter):.5g}" for name, own in draws.items()
    )
    yield (
        f"A new run is charged rho {format_rho(needed)} to dataset {dataset!r}"
        f"{f': {of_each}' if len(draws) > 1 else ''}."
    )
    for plan in plans.values():
        yield from explain_charges(plan)
    notice = missing_cap_warning(settings)
    if notice is not None:
        yield f"{notice[0].upper()}{notice[1:]}."
    if not ledger.path.exists():
        return
    with reading(open_ledger(ledger.path, must_exist=True)) as connection:
        spent, cap = spending_of(connection, dataset).total.parameter, caps_of(connection, dataset)
        try:
            check_caps(connection, dataset, [*draws.values()])
        except BudgetRefused as error:
            raise BudgetRefused(f"a new run would be refused: {error}") from None
    if cap.rho is not None:
        yield (
            f"The cap is rho {format_rho(cap.rho)}, of which {float(spent):.5g} is spent; "
            f"{float(cap.rho - spent - needed):.5g} would remain."
        )
