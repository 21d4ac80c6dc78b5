"""The certificate that goes with a release of trips: public content only."""

from __future__ import annotations

from spineflow.tasks.pages.document import Document, Section, Table, to_html, to_markdown
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.runs.gate import CERTIFICATE
from spineflow.tasks.runs.report_sections import checks_section
from spineflow.tasks.trips.ingest.files import plan_of, read_tree
from spineflow.tasks.trips.release.statements import (
    METHODS,
    cost_table,
    delta_warning,
    guarantee_text,
    noise_section,
)
from spineflow.tasks.trips.release.table import RANGE_QUERIES, n_trips
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.workload.plan import Plan


def write_certificate(run: RunDirectory, settings: TripsSettings) -> None:
    """Write `certificate.html` and `certificate.md` beside the checked table."""
    document = certificate(run, settings)
    for ending, text in (("md", to_markdown(document)), ("html", to_html(document))):
        with replacing(run.unchecked_release / f"{CERTIFICATE}.{ending}") as part:
            part.write_text(text, encoding="utf-8")


def certificate(run: RunDirectory, settings: TripsSettings) -> Document:
    """What was protected and how, what is exact, what was checked, and where it comes from."""
    plan = plan_of(run, settings)
    warning = delta_warning(settings, n_trips(run.unchecked_release, plan.tree))
    return Document(
        f"Certificate of disclosure avoidance: {settings.privacy.dataset}",
        (f"The files beside this certificate were made {METHODS[plan.mechanism]}.",),
        (
            Section(
                "What is guaranteed",
                (
                    *guarantee_text(settings, plan),
                    cost_table(settings, plan),
                    *([] if warning is None else [f"Warning: {warning}."]),
                ),
            ),
            noise_section(settings, plan),
            _exact_statements(run, plan),
            _files(plan),
            checks_section(run),
            _provenance(run),
        ),
        settings.stamp,
    )


def _exact_statements(run: RunDirectory, plan: Plan) -> Section:
    total = read_tree(run).total
    texts = ["The areas, or values of the levels, are public by declaration."]
    if total is not None and plan.is_top_down:
        texts.append(
            f"The number of trips, {total:,}, is released without noise: neighbouring tables "
            "have the same."
        )
    return Section("What is stated exactly", tuple(texts))


def _files(plan: Plan) -> Section:
    rows = tuple((level, plan.tree.level_name(level)) for level in range(plan.tree.depth + 1))
    return Section(
        "What is released",
        (
            f"The table, as trips.parquet and trips.csv, without rows of zero trips; and its sums "
            f"at every level of the tree, as {RANGE_QUERIES}.",
            Table(("level", "areas"), rows),
        ),
    )


def _provenance(run: RunDirectory) -> Section:
    manifest = run.read_manifest()
    rows = (
        ("run", manifest["run_id"]),
        ("started", manifest["created"]),
        ("settings (SHA-256)", manifest["settings_digest"]),
        ("code (SHA-256 of the sources)", manifest["code_version"]),
        *(
            (f"input: {kind} (HMAC under the ledger's key)", digest)
            for kind, digest in manifest["input_digests"].items()
        ),
    )
    return Section("Where it comes from", (Table(("what", "value"), rows),))
