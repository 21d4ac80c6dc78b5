"""The page, the index and the certificate of a run of several products: results of each, and the
total cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..pages.document import FrontPage, Link, Section, document_of
from ..pages.numbers import format_delta, format_epsilon
from ..runs.directory import RunDirectory
from ..runs.files import write_page, write_record
from ..runs.settings import ProductSettings
from .acceptance import CERTIFICATE, publish_release
from .certificate import certificate_page, files_table, record_of_release, write_document
from .plan import VERSION, Statement
from .reports import certificate_links, passed_and_all, provenance, stages_blocks
from .spent import composed_sentence, dataset_spending, draws_table, stated_sentence

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

    publish_release(run, write)


def write_products_report(
    run: RunDirectory,
    settings: ProductSettings,
    products: Sequence[str],
    further: Sequence[Section] = (),
) -> Path:
    """Write `report/report.html`: a line for each product, and the spending of the dataset.

    `settings` are the parent run's, which have the dataset and its ledger; `further` is the joint
    output of the products.
    """
    parts = {name: RunDirectory(run.root / name) for name in products}
    rows = [
        {
            "product": name,
            "status": part.read_manifest()["status"],
            "release": Link("release", f"../{name}/release/"),
            "report": Link("report", f"../{name}/report/report.html"),
        }
        for name, part in parts.items()
    ]
    counted = [passed_and_all(part) for part in parts.values()]
    passed, n_checks = (sum(column) for column in zip(*counted, strict=True))
    verdict = f"{len(parts)} products are released: all {n_checks} checks of them passed."
    if passed < n_checks:
        verdict = f"{n_checks - passed} of {n_checks} checks of {len(parts)} products failed."
    dataset = dataset_spending(settings, {})
    spent = {} if dataset is None else dataset["products"]
    links = [Link(f"Report: {name}", f"../{name}/report/report.html") for name in products]
    front = FrontPage(
        verdict,
        passed == n_checks,
        _guarantee(settings, dataset),
        (),
        (*certificate_links(run), *links),
    )
    document = document_of(
        "products/templates/products_report.md.j2",
        settings.stamp,
        front,
        provenance(run),
        folded=True,
        settings=settings,
        dataset=dataset,
        spent={name: float(Fraction(own["rho"])) for name, own in spent.items()},
        products=rows,
        further=further,
        draws_table=draws_table,
        composed_sentence=composed_sentence,
        stages=stages_blocks(run),
    )
    return write_page(run.report, document)


def _guarantee(settings: ProductSettings, dataset: Mapping[str, Any] | None) -> str:
    """The guarantee of all that was drawn from the dataset together, in a sentence."""
    if dataset is None:
        return f"Nothing is guaranteed: {settings.why_not_private}."
    epsilon = format_epsilon(dataset["epsilon"]["tight"])
    delta = format_delta(dataset["epsilon"]["delta"])
    return (
        "Guarantee: a change of one person's data, of the kind that the certificates of all these "
        "products protect, changes the probability of everything that was released of the dataset "
        f"by a factor of at most e^{epsilon}, except with probability {delta} (epsilon {epsilon} "
        f"at delta {delta}, from a rho of "
        f"{float(Fraction(dataset['rho'])):.4g}).{stated_sentence(dataset)}"
    )


def write_products_certificate(
    run: RunDirectory, settings: ProductSettings, products: Mapping[str, Statement], folder: Path
) -> None:
    """Write the certificate, in all its forms, next to the index of the products' releases: the
    dataset's total spent budget, the certificate and files of every product, and files in the
    folder derived from all of them.

    `products` are the products' statements by name. Raises BudgetRefused if the ledger cannot be
    used, or lacks a draw of one of them.
    """
    parts = {name: RunDirectory(run.root / name) for name in products}
    run_ids = {name: part.read_manifest()["run_id"] for name, part in parts.items()}
    stated = {run_ids[name]: statement for name, statement in products.items()}
    spent = dataset_spending(settings, stated, is_exact=True)
    certificates = [
        {
            "product": name,
            "run": run_id,
            "certificate": Link("certificate", f"../{name}/release/{CERTIFICATE}.html"),
        }
        for name, run_id in run_ids.items()
    ]
    released = [path for part in parts.values() for path in part.release.rglob("*")]
    document = certificate_page(
        "products/templates/products_certificate.md.j2",
        settings,
        parts=list(parts),
        spent=spent,
        certificates=certificates,
        files=files_table(run.root, [path for path in released if path.is_file()]),
        together=files_table(folder, folder.rglob("*.parquet")),
        manifest=run.read_manifest(),
    )
    record = {
        "version": VERSION,
        "product": settings.PRODUCT,
        "dataset": settings.privacy.dataset,
        "certificates": {
            name: {"run_id": run_id, "certificate": f"../{name}/release/{CERTIFICATE}.json"}
            for name, run_id in run_ids.items()
        },
        **record_of_release(run, settings, spent, folder),
    }
    write_document(document, record, folder)
