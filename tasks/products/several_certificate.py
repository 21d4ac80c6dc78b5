"""The certificate of several products of one dataset, with their joint cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..pages.document import Link
from ..runs.directory import RunDirectory
from ..runs.settings import ProductSettings
from .acceptance import CERTIFICATE
from .certificate import (
    certificate_page,
    files_table,
    record_of_release,
    write_document,
)
from .plan import VERSION
from .spent import dataset_spending
from .statement import Statement


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
    spent = dataset_spending(settings, {run_ids[name]: stated for name, stated in products.items()})
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
