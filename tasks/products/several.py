"""The page and the index of a run of several products: what each gave, and what all cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from ..ledger.store import open_ledger
from ..ledger.summary import summary
from ..pages.document import Document, FrontPage, Link, Section, Table
from ..pages.numbers import shown_delta, shown_epsilon
from ..runs.directory import RunDirectory
from ..runs.files import write_page, write_record
from ..runs.settings import ProductSettings
from .acceptance import released
from .reports import (
    bars_panel,
    certificate_links,
    passed_and_all,
    provenance,
    stage_seconds,
    stages_section,
    time_panel,
)
from .spent import composed_sentence, draws_table, stated_sentence

INDEX = "products.json"


def write_index(
    run: RunDirectory, products: Sequence[str], complete: Callable[[Path], None] = lambda _: None
) -> None:
    """Write `release/products.json`: the folder of every product's release, and its run.

    `complete` adds further files to the folder before it gets its name.
    """

    def write() -> None:
        index = {
            name: {
                "release": f"../{name}/release",
                "run_id": RunDirectory(run.root / name).read_manifest()["run_id"],
            }
            for name in products
        }
        write_record(run.unchecked_release / INDEX, index)
        complete(run.unchecked_release)

    released(run, write)


def write_products_report(
    run: RunDirectory,
    settings: ProductSettings,
    products: Sequence[str],
    further: Sequence[Section] = (),
) -> Path:
    """Write `report/report.html`: a line for each product, and what the dataset has spent.

    `settings` are the parent run's, which have the dataset and its ledger; `further` is what the
    products together give.
    """
    parts = {name: RunDirectory(run.root / name) for name in products}
    rows = tuple(
        (
            name,
            part.read_manifest()["status"],
            Link("release", f"../{name}/release/"),
            Link("report", f"../{name}/report/report.html"),
        )
        for name, part in parts.items()
    )
    headers = ("product", "status", "release", "report")
    counted = [passed_and_all(part) for part in parts.values()]
    passed, n_checks = (sum(column) for column in zip(*counted, strict=True))
    verdict = f"{len(parts)} products are released: all {n_checks} checks of them passed."
    if passed < n_checks:
        verdict = f"{n_checks - passed} of {n_checks} checks of {len(parts)} products failed."
    seconds = {name: sum(stage_seconds(part).values()) for name, part in parts.items()}
    links = [Link(f"Report: {name}", f"../{name}/report/report.html") for name in products]
    document = Document(
        f"Products of {settings.privacy.dataset}",
        (
            "Every product reads the same people, so what they cost adds up under one name in "
            "the ledger.",
        ),
        (
            Section("Products", (Table(headers, rows, "status"),)),
            *further,
            _cost(settings),
            stages_section(run),
        ),
        settings.stamp,
        FrontPage(
            verdict,
            passed == n_checks,
            _guarantee(settings),
            (*_spent(settings), time_panel(seconds)),
            (*certificate_links(run), *links),
        ),
        provenance(run),
    )
    return write_page(run.report, document)


def _guarantee(settings: ProductSettings) -> str:
    """What all that was drawn from the dataset guarantees together, in a sentence."""
    if not settings.is_private:
        return f"Nothing is guaranteed: {settings.why_not_private}."
    dataset = _dataset(settings)
    epsilon = shown_epsilon(dataset["epsilon"]["tight"])
    delta = shown_delta(dataset["epsilon"]["delta"])
    return (
        "Guarantee: a change of one person's data, of the kind that the certificates of all these "
        "products protect, makes nothing that was ever released of the dataset more likely by "
        f"more than a factor of e to the power of {epsilon}, but for a "
        f"probability of {delta} (epsilon {epsilon} at delta {delta}, from a rho of "
        f"{float(Fraction(dataset['rho'])):.4g}).{stated_sentence(dataset)}"
    )


def _spent(settings: ProductSettings) -> tuple[Section, ...]:
    """What each product has cost, as bars."""
    if not settings.is_private:
        return ()
    spent = {n: float(Fraction(p["rho"])) for n, p in _dataset(settings)["products"].items()}
    words = "What the dataset has spent on each product by its ledger, as bounded zCDP per person."
    found = {"rho": list(spent.values())}
    return (bars_panel("The budget", words, list(spent), found, value_label="rho"),)


def _dataset(settings: ProductSettings) -> dict:
    """What the ledger holds of the dataset."""
    ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
    return summary(ledger)["datasets"][settings.privacy.dataset]


def _cost(settings: ProductSettings) -> Section:
    """What the ledger holds of the dataset, by product, this run's and all others."""
    if not settings.is_private:
        return Section("Cost", ("Runs that are not private are not charged.",))
    dataset = _dataset(settings)
    about = (
        "All that was ever drawn from this dataset, in its native guarantee and composed as "
        "bounded zCDP per person."
    )
    return Section("Cost", (about, draws_table(dataset), composed_sentence(dataset)))
