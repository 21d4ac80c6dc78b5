"""The certificate of disclosure avoidance: from a product's facts to a page.

Its content is public. It is written beside the checked release, before that gets its name, and
derived from the settings that ran: a sentence stands only where they make it true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...validation.outcome import CHECKS_FILE
from ..ledger.plan import REPORT_DELTA
from ..pages.document import Block, Document, Section, Table, to_markdown
from ..runs.charged_files import digests_of
from ..runs.directory import RunDirectory
from ..runs.files import read_record, write_page, write_record, write_text
from ..runs.settings import ProductSettings
from .acceptance import CERTIFICATE
from .plan import Plan
from .privacy_curves import Curves, exact_epsilons, exact_figures
from .reports import checks_table, exact_section, noise_section
from .spent import spent_by, spent_section
from .statement import guarantee_section

Epsilons = Mapping[str, Mapping[str, float | str | None]]
"""By name, by `conversion` of rho and `exact`; None where the exact one is not known."""


@dataclass(frozen=True)
class Facts:
    """What a product says of one of its releases.

    made : how the files were made, in a sentence.
    public : a paragraph for readers who know no mathematics.
    noise : what is said of the noise, beside the table of every measure; without it there is none.
    sections : the product's own.
    curves : whose exact figures, at `delta`, stand beside those of the guarantee; None for none.
    figures : what else the noise implies, such as the epsilon of a single attribute.
    warnings : sentences that a reader must not miss.
    exact_epsilons : by part; by default those of the curves.
    attributes, block_within : by universe, the epsilon that protects one attribute of a record, or
        its block where its geounit of a level is known: by `conversion` of rho, and `exact`.
    """

    made: str
    public: str
    noise: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    curves: Curves | None = None
    delta: Fraction = REPORT_DELTA
    figures: tuple[Block, ...] = ()
    warnings: tuple[str, ...] = ()
    exact_epsilons: Mapping[str, float] = field(default_factory=dict)
    attributes: Mapping[str, Epsilons] = field(default_factory=dict)
    block_within: Mapping[str, Epsilons] = field(default_factory=dict)


BLURRED = (
    "Nobody's record is published. Counts of the confidential records were blurred by adding "
    "random noise, and these files were computed from the blurred counts. So nobody can be certain "
    "from them what one record says. The privacy loss below bounds how much one record can change "
    "what is published: the smaller it is, the stronger the protection."
)
"""How the plain words of every product begin."""

PUBLIC_WHY_NOT = (
    "These files are a test. They were made from data that may be disclosed, and nothing in them "
    "protects anybody."
)


def write_certificate(
    run: RunDirectory, settings: ProductSettings, plan: Plan, facts: Facts
) -> None:
    """Write the certificate beside the checked release: as JSON, as Markdown and as HTML.

    Raises BudgetRefused if the ledger cannot be used, or does not hold what the run has drawn.
    """
    folder, run_id = run.unchecked_release, run.read_manifest()["run_id"]
    spent = spent_by(settings, {run_id: plan.statement})
    curves = facts.curves if settings.is_private else None
    epsilons = facts.exact_epsilons or exact_epsilons(curves, facts.delta)
    figures = (*exact_figures(curves, epsilons, facts.delta), *facts.figures)
    record = {
        **plan.as_json(),
        "epsilon": [
            {
                "universe": loss.universe,
                "delta": str(loss.whole_delta),
                "conversion": loss.epsilon,
                "simple": loss.epsilons()["simple"],
                "exact": epsilons.get(loss.universe),
            }
            for loss in plan.statement.losses
        ],
        "attributes": facts.attributes if settings.is_private else {},
        "block_within": facts.block_within if settings.is_private else {},
        **record_of_release(run, settings, spent, folder),
    }
    document = Document(
        f"Certificate of disclosure avoidance: {settings.privacy.dataset}",
        (f"The files beside this certificate were made {facts.made}.",),
        (
            Section("In plain words", (facts.public if settings.is_private else PUBLIC_WHY_NOT,)),
            guarantee_section(plan.statement, figures, facts.warnings),
            spent_section(settings, spent),
            exact_section(plan.exact),
            *([noise_section(plan, *facts.noise)] if facts.noise else []),
            *facts.sections,
            _checks(run),
            Section("What is released", (files_table(folder, released_files(folder)),)),
            provenance_section(run),
        ),
        settings.stamp,
    )
    write_as(document, record, folder)


def record_of_release(
    run: RunDirectory, settings: ProductSettings, spent: Mapping[str, Any] | None, folder: Path
) -> dict[str, Any]:
    """What a certificate states of the dataset's ledger, the checks, the files and the run."""
    manifest = run.read_manifest()
    checks = run.checks / CHECKS_FILE
    files = sorted(released_files(folder))
    return {
        "ledger": None
        if spent is None
        else {
            "dataset": settings.privacy.dataset,
            **{name: spent[name] for name in ("rho", "stated_rho", "delta", "epsilon")},
            # Where the runs of an office lie is nobody else's business.
            "draws": [
                {"product": product, **{k: v for k, v in draw.items() if k != "folder"}}
                for product, own in spent["products"].items()
                for draw in own["draws"]
            ],
        },
        "checks": read_record(checks)["checks"] if checks.exists() else [],
        "files": {
            path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": digest}
            for path, digest in zip(files, digests_of(files), strict=True)
        },
        "run": {
            name: manifest[name]
            for name in ("run_id", "created", "settings_digest", "code_version", "input_digests")
        },
        "stamp": settings.stamp,
    }


def write_as(document: Document, record: Mapping[str, Any], folder: Path) -> None:
    """Write a certificate as JSON, as Markdown and as HTML."""
    write_record(folder / f"{CERTIFICATE}.json", record)
    write_text(folder / f"{CERTIFICATE}.md", to_markdown(document))
    write_page(folder / f"{CERTIFICATE}.html", document)


def _checks(run: RunDirectory) -> Section:
    about = (
        "Recomputed from the run's files, before they were published, by code that shares nothing "
        "with what made them."
    )
    return Section("What was checked", (about, checks_table(run)))


def released_files(folder: Path) -> list[Path]:
    """The files of a release, but for the certificate itself."""
    own = {folder / f"{CERTIFICATE}.{ending}" for ending in ("json", "md", "html")}
    return [path for path in folder.rglob("*") if path.is_file() and path not in own]


def files_table(root: Path, files: Iterable[Path]) -> Table:
    """Names below `root`, sizes and digests of files."""
    ordered = sorted(files)
    rows = tuple(
        (path.relative_to(root).as_posix(), path.stat().st_size, digest)
        for path, digest in zip(ordered, digests_of(ordered), strict=True)
    )
    return Table(("file", "bytes", "SHA-256"), rows)


def provenance_section(run: RunDirectory) -> Section:
    """The run, its settings, its code, and its input as the ledger's key sees it."""
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
