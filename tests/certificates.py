"""The text of a certificate of settings and facts, without what a run adds."""

from __future__ import annotations

from spineflow.tasks.pages.document import to_markdown
from spineflow.tasks.products.certificate import Facts, certificate_document, exact_of
from spineflow.tasks.products.plan import Plan
from spineflow.tasks.runs.settings import ProductSettings

MANIFEST = {
    "run_id": "r",
    "created": "c",
    "settings_digest": "s",
    "code_version": "v",
    "input_digests": {},
}


def certificate_text(settings: ProductSettings, plan: Plan, facts: Facts) -> str:
    """The words of a certificate, in one line."""
    of_run = {"spent": None, "checks": None, "files": None, "manifest": MANIFEST}
    exact = exact_of(settings, plan, facts)
    document = certificate_document(settings, plan, facts, exact, **of_run)
    return " ".join(to_markdown(document).split())
