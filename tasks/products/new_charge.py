"""The charge of a run that would begin now, and the answer of its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..ledger.accounting import ZCDP, Guarantee
from ..ledger.caps import caps_of, check_caps
from ..ledger.charging import first_run_notice
from ..ledger.spending import Spending, SpentDraw, spending_of
from ..ledger.store import ledger_at, open_ledger, reading
from ..pages.numbers import format_rho
from ..runs.errors import BudgetRefused
from ..runs.settings import ProductSettings
from .plan import explain_charges
from .product import Product
from .registry import product as product_named


def new_charge(asked: Product, settings: ProductSettings) -> Iterator[str]:
    """Sentences on the charge of a new run of these settings, the reason why it exceeds the sum of
    the budgets, and the remainder of the dataset's cap.

    A mechanism's own delta is left to the run. Raises BudgetRefused where the run would be refused.
    """
    if not settings.is_private or not settings.draws_noise:
        return
    draws = dict(_draws(asked, settings))
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
    yield from _reasons(asked, settings)
    notice = first_run_notice(settings)
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


def _draws(asked: Product, settings: ProductSettings) -> Iterator[tuple[str, SpentDraw]]:
    """Each draw of a run, by its name, preceded by the product's name if there are several."""
    for product, own in settings.parts.items():
        for name, draw in _draws(product_named(own.PRODUCT), own):
            yield f"{product} {name}", draw
    for drawn in () if asked.plan is None else asked.plan(settings, None).universes:
        rho = Guarantee(ZCDP, drawn.promised.bounded_rho)
        yield drawn.universe, SpentDraw(rho, drawn.curve)


def _reasons(asked: Product, settings: ProductSettings) -> Iterator[str]:
    """For each universe charged more than the rho of one record, a sentence with the reason."""
    for own in settings.parts.values():
        yield from _reasons(product_named(own.PRODUCT), own)
    if asked.plan is not None:
        yield from explain_charges(asked.plan(settings, None))
