"""The charge of a run that would begin now, and the answer of its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..ledger.accounting import ZCDP, Guarantee
from ..ledger.caps import caps_of, check_caps
from ..ledger.charging import missing_cap_warning
from ..ledger.spending import Spending, SpentDraw, spending_of
from ..ledger.store import ledger_at, open_ledger, reading
from ..pages.numbers import format_rho
from ..runs.errors import BudgetRefused
from ..runs.settings import ProductSettings
from .plan import Plan, explain_charges
from .product import Product
from .registry import product as product_named


def new_charge(asked: Product, settings: ProductSettings) -> Iterator[str]:
    """Sentences on the charge of a new run of these settings, the reason why it exceeds the sum of
    the budgets, and the remainder of the dataset's cap.

    A mechanism's own delta is left to the run. Raises BudgetRefused where the run would be refused.
    """
    if not settings.is_private or not settings.draws_noise:
        return
    plans = dict(_plans(asked, settings))
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


def _plans(asked: Product, settings: ProductSettings) -> Iterator[tuple[str, Plan]]:
    """The plan of a run, under an empty name, or those of its products by their names."""
    if asked.plan is not None:
        yield "", asked.plan(settings, None)
    for name, own in settings.parts.items():
        for _, plan in _plans(product_named(own.PRODUCT), own):
            yield name, plan
