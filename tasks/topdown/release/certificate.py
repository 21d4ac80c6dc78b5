"""The certificate of disclosure avoidance that goes with a release: public content only."""

from __future__ import annotations

import json

from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, noise_deviation
from spineflow.tasks.pages.document import Document, Figure, Section, Table, to_html, to_markdown
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.runs.gate import CERTIFICATE
from spineflow.tasks.topdown.measurement.constraints import MOST_PERSONS_PER_ADDRESS
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import budget_report
from spineflow.tasks.topdown.workload.privacy_curve import privacy_curve

_MEANING = {
    DISCRETE_GAUSSIAN: (
        "Discrete Gaussian noise: changing one record to any other changes the distribution of "
        "the outcome by no more than zero-concentrated differential privacy with parameter rho "
        "allows (bounded neighbours); epsilon at delta follows by the tight and by the simple "
        "conversion."
    ),
    DISCRETE_LAPLACE: (
        "Discrete Laplace noise: changing one record to any other changes the probability of any "
        "outcome by a factor of at most e to the power of epsilon (pure differential privacy, "
        "bounded neighbours); rho is the zero-concentrated loss that this implies."
    ),
}


_METHODS = {
    "topdown": "by the TopDown Algorithm",
    "block_by_block": "block by block",
    "full_information": "by the TopDown Algorithm, from the measurements of all geolevels combined",
}


def write_certificate(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write `certificate.html` and `certificate.md` beside the checked microdata."""
    document = certificate(run, settings)
    for ending, text in (("md", to_markdown(document)), ("html", to_html(document))):
        with replacing(run.unchecked_release / f"{CERTIFICATE}.{ending}") as part:
            part.write_text(text, encoding="utf-8")


def certificate(run: RunDirectory, settings: TopdownSettings) -> Document:
    """What was protected, with which parameters, what is stated exactly, and what was checked."""
    manifest = run.read_manifest()
    universes = settings.run.universes
    budgets = [settings.budget_of(universe) for universe in universes]
    reports = [
        budget_report(budget, settings.schema_of(universe))
        for universe, budget in zip(universes, budgets, strict=True)
    ]
    return Document(
        f"Certificate of disclosure avoidance: {settings.privacy.dataset}",
        (
            f"The files beside this certificate were made {_METHODS[settings.run.estimator]}: "
            "counts of the confidential records were measured with random noise of a known "
            "distribution, and everything else was computed from those noisy measurements, from "
            "the invariants named below and from public geography.",
        ),
        (
            _guarantee(reports, privacy_curve(budgets)),
            *(_allocation(report) for report in reports),
            _exact_statements(settings),
            _checks(run),
            _provenance(manifest),
        ),
        settings.stamp,
    )


def _guarantee(reports: list[dict], curve: Figure | None) -> Section:
    rows = tuple(
        (
            report["universe"],
            report["mechanism"].replace("_", " "),
            report["rho"],
            report["delta"] or "0",
            _epsilon(report["epsilon"]["tight"]),
            _epsilon(report["epsilon"]["simple"]),
        )
        for report in reports
    )
    attributes = tuple(
        (report["universe"], name, _epsilon(epsilon))
        for report in reports
        for name, epsilon in report["attributes"].items()
    )
    within = tuple(
        (report["universe"], name, _epsilon(epsilon))
        for report in reports
        for name, epsilon in report["block_within"].items()
    )
    return Section(
        "What is guaranteed",
        (
            *(_MEANING[mechanism] for mechanism in dict.fromkeys(r["mechanism"] for r in reports)),
            "The losses of persons and units add up.",
            Table(("universe", "mechanism", "rho", "delta", "epsilon", "epsilon (simple)"), rows),
            *([] if curve is None else [curve]),
            "Epsilon for an attacker who lacks one attribute only:",
            Table(("universe", "attribute", "epsilon"), attributes),
            "Epsilon for the block of a record, when its geounit at a geolevel is known:",
            Table(("universe", "known geounit", "epsilon"), within),
        ),
    )


def _allocation(report: dict) -> Section:
    rows = tuple(
        (
            query["geolevel"],
            query["query"],
            query["geolevel_share"],
            query["query_share"],
            noise_deviation(query),
        )
        for query in report["queries"]
    )
    return Section(
        f"Allocation: {report['universe']}",
        (
            "Shares of the loss by geolevel and by query, and the standard deviation of the noise "
            "in each answer before geounits were bypassed. Along every path from the root to a "
            "block the shares add to exactly 1.",
            Table(
                ("geolevel", "query", "geolevel share", "query share", "noise s.d."),
                rows,
            ),
        ),
    )


def _exact_statements(settings: TopdownSettings) -> Section:
    zeros = [
        f"{zero.name}: {universe} with "
        + " and ".join(f"{name} in {list(levels)}" for name, levels in zero.where.items())
        for universe in settings.run.universes
        for zero in settings.zeros_of(universe)
    ]
    totals = ("state totals", "the population of every state is released without noise")
    rows = (
        *(() if settings.blocks_only else (totals,)),
        ("housing units", "the number of housing units of every block is released without noise"),
        (
            "group quarters",
            "the number of occupied facilities of every type in every block is released without "
            "noise",
        ),
        (
            "bounds",
            f"1 to {MOST_PERSONS_PER_ADDRESS:,} persons per facility of each type; at most "
            f"{MOST_PERSONS_PER_ADDRESS:,} per housing unit",
        ),
        *(("structural zero", zero) for zero in zeros),
    )
    return Section(
        "What is stated exactly",
        (
            "These invariants are outside the guarantee: they are public by declaration.",
            Table(("invariant", "meaning"), rows),
        ),
    )


def _checks(run: RunDirectory) -> Section:
    checks = json.loads((run.checks / "checks.json").read_text(encoding="utf-8"))["checks"]
    rows = tuple(
        (
            check["universe"],
            check["name"].replace("_", " "),
            "passed" if check["passed"] else "FAILED",
        )
        for check in checks
    )
    return Section(
        "What was checked",
        (
            "Recomputed from the run's files by code that is independent of the estimation.",
            Table(("universe", "check", "outcome"), rows),
        ),
    )


def _provenance(manifest: dict) -> Section:
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


def _epsilon(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}"
