"""The certificate of several products of one dataset: what all of them cost together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..pages.document import Block, Document, Link, Section, Table
from ..runs.directory import RunDirectory
from ..runs.settings import ProductSettings
from .acceptance import CERTIFICATE
from .certificate import (
    BLURRED,
    PUBLIC_WHY_NOT,
    files_table,
    provenance_section,
    record_of_release,
    write_as,
)
from .plan import VERSION
from .spent import spent_by, spent_section
from .statement import Statement


def write_products_certificate(
    run: RunDirectory, settings: ProductSettings, products: Mapping[str, Statement], folder: Path
) -> None:
    """Write the certificate, in all its forms, beside the index of the products' releases: what the
    dataset has spent in all, the certificate and files of every product, and files in the folder
    that were made of all of them together.

    `products` are the products' statements by name. Raises BudgetRefused if the ledger cannot be
    used, or does not hold what one of them has drawn.
    """
    parts = {name: RunDirectory(run.root / name) for name in products}
    own = {parts[name].read_manifest()["run_id"]: stated for name, stated in products.items()}
    spent = spent_by(settings, own)
    certificates = tuple(
        (
            name,
            part.read_manifest()["run_id"],
            Link("certificate", f"../{name}/release/{CERTIFICATE}.html"),
        )
        for name, part in parts.items()
    )
    if settings.is_private:
        plainly = (
            f"{BLURRED} Every further release of the same people lets more be concluded about each "
            "of them, so that the losses of all releases are added up below."
        )
        guaranteed = (
            "Each product's guarantee is its own. Together they guarantee the composed loss below, "
            "for one person's data in all of them, as far as the changes that the products protect "
            "against have in common: where one product states a fact exactly, the change must "
            "leave that fact as it is."
        )
    else:
        plainly, guaranteed = PUBLIC_WHY_NOT, f"Nothing is guaranteed: {settings.why_not_private}."
    by_run = Table(("product", "run", "certificate"), certificates)
    released = (files_table(run.root, _releases(parts)), *_together(folder))
    document = Document(
        f"Certificate of disclosure avoidance: {settings.privacy.dataset}",
        (
            f"These releases were made from the same people: {', '.join(products)}. Each has a "
            "certificate of its own, which says what it guarantees and against which change.",
        ),
        (
            Section("In plain words", (plainly,)),
            Section("What is guaranteed", (guaranteed, by_run)),
            spent_section(settings, spent),
            Section("What is released", released),
            provenance_section(run),
        ),
        settings.stamp,
    )
    record = {
        "version": VERSION,
        "product": settings.PRODUCT,
        "dataset": settings.privacy.dataset,
        "certificates": {
            name: {
                "run_id": part.read_manifest()["run_id"],
                "certificate": f"../{name}/release/{CERTIFICATE}.json",
            }
            for name, part in parts.items()
        },
        **record_of_release(run, settings, spent, folder),
    }
    write_as(document, record, folder)


def _together(folder: Path) -> tuple[Block, ...]:
    """What was made of all releases together, which costs nothing further."""
    files = list(folder.rglob("*.parquet"))
    if not files:
        return ()
    return (
        "Made of these releases alone, with nothing measured besides, so at no further loss:",
        files_table(folder, files),
    )


def _releases(parts: dict[str, RunDirectory]) -> list[Path]:
    """All files of the products' releases, their certificates among them."""
    return [path for part in parts.values() for path in part.release.rglob("*") if path.is_file()]
