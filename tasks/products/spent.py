"""What a dataset has spent by now, as its ledger has it: the same figures as `spineflow ledger`."""

from __future__ import annotations

from pathlib import Path

from ..ledger.store import open_ledger
from ..ledger.summary import summary
from ..pages.document import Section, Table
from ..pages.numbers import shown_delta, shown_epsilon, shown_rho
from ..runs.settings import ProductSettings

TITLE = "What the dataset has spent so far"


def spent_section(settings: ProductSettings) -> Section:
    """All draws from the dataset of these settings, by product, and what they amount to together.

    Raises BudgetRefused if the ledger cannot be used.
    """
    if not settings.draws_noise:
        text = (
            "This run drew nothing from anybody's records, and spent nothing: it read noisy "
            "measurements that are published already. What they cost stands above."
        )
        return Section(TITLE, (text,))
    if not settings.is_private:
        return Section(TITLE, ("A run that is not private is not charged to a ledger.",))
    ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
    spent = summary(ledger)["datasets"][settings.privacy.dataset]
    rows = tuple(
        (
            product,
            draw["run_id"],
            draw["name"],
            f"{'epsilon' if draw['definition'] == 'pure_dp' else 'rho'} {draw['parameter']}",
            draw["neighbors"],
            shown_delta(draw["delta"]),
            shown_rho(draw["bounded_rho"]),
        )
        for product, drawn in spent["products"].items()
        for draw in drawn["draws"]
    )
    headers = ("product", "run", "draw", "guarantee", "neighbours", "own delta", "bounded rho")
    return Section(
        TITLE,
        (
            f"Everything that was drawn under the name {settings.privacy.dataset} in this ledger "
            "when the certificate was written, this release included. Later releases of the same "
            "people add to it.",
            composed_sentence(spent),
            Table(headers, rows, "bounded rho"),
        ),
    )


def composed_sentence(spent: dict) -> str:
    """The composed loss of a dataset of `summary`, in words, and its caps."""
    epsilon = spent["epsilon"]
    caps = [
        f"{name} {show(spent[key])}"
        for name, key, show in (("rho", "cap", shown_rho), ("delta", "delta_cap", shown_delta))
        if spent[key] is not None
    ]
    capped = f"the cap is {' and '.join(caps)}" if caps else "no cap is set"
    return (
        f"Together, as bounded zCDP per person: rho {shown_rho(spent['rho'])}, the mechanisms' own "
        f"delta {shown_delta(spent['delta'])}; that is epsilon {shown_epsilon(epsilon['tight'])} "
        f"(simple conversion {shown_epsilon(epsilon['simple'])}) at delta "
        f"{shown_delta(epsilon['delta'])}; {capped}."
    )
