"""The certificate of disclosure avoidance: from a product's facts to a page.

Its content is public. It is written beside the checked release, before that gets its name, and
derived from the settings that ran: a sentence stands only where they make it true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ..ledger.summary import REPORT_DELTA
from ..pages.document import Document, Section, Table, to_markdown
from ..runs.charged_files import digests_of
from ..runs.directory import RunDirectory
from ..runs.files import write_page, write_text
from ..runs.settings import ProductSettings
from .acceptance import CERTIFICATE
from .privacy_curves import Curves, exact_figures
from .reports import checks_table
from .spent import spent_section
from .statement import Statement, guarantee_section


@dataclass(frozen=True)
class Exact:
    """Something that is public by declaration: what, and what that means for the release."""

    name: str
    meaning: str


@dataclass(frozen=True)
class Facts:
    """What a product says of one of its releases.

    made : how the files were made, in a sentence.
    public : a paragraph for readers who know no mathematics.
    statement : what is guaranteed.
    exact : what is outside the guarantee, since it is public by declaration.
    sections : the product's own, on its noise and its files.
    curves : whose exact figures, at `delta`, stand beside those of the guarantee; None for none.
    """

    made: str
    public: str
    statement: Statement
    exact: tuple[Exact, ...]
    sections: tuple[Section, ...] = ()
    curves: Curves | None = None
    delta: Fraction = REPORT_DELTA


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


def certificate(
    run: RunDirectory, settings: ProductSettings, facts: Facts, folder: Path
) -> Document:
    """The certificate of the files that stand in `folder`.

    Raises BudgetRefused if the ledger cannot be used, or does not hold what the run has drawn.
    """
    own = {run.read_manifest()["run_id"]: facts.statement}
    return Document(
        f"Certificate of disclosure avoidance: {settings.privacy.dataset}",
        (f"The files beside this certificate were made {facts.made}.",),
        (
            Section("In plain words", (facts.public if settings.is_private else PUBLIC_WHY_NOT,)),
            guarantee_section(facts.statement, exact_figures(facts.curves, facts.delta)),
            spent_section(settings, own),
            exact_section(facts.exact),
            *facts.sections,
            _checks(run),
            files_section(folder),
            provenance_section(run),
        ),
        settings.stamp,
    )


def write_certificate(run: RunDirectory, settings: ProductSettings, facts: Facts) -> None:
    """Write `certificate.html` and `certificate.md` beside the checked release."""
    write_pages(certificate(run, settings, facts, run.unchecked_release), run.unchecked_release)


def write_pages(document: Document, folder: Path) -> None:
    """Write a certificate as Markdown and as HTML."""
    write_text(folder / f"{CERTIFICATE}.md", to_markdown(document))
    write_page(folder / f"{CERTIFICATE}.html", document)


def exact_section(exact: Sequence[Exact]) -> Section:
    """What leaves without noise, for certificate and report."""
    if not exact:
        return Section("What is exact", ("Nothing is stated without noise.",))
    rows = tuple((item.name, item.meaning) for item in exact)
    about = "These facts are outside the guarantee: they are public by declaration."
    return Section("What is exact", (about, Table(("fact", "meaning"), rows)))


def _checks(run: RunDirectory) -> Section:
    about = (
        "Recomputed from the run's files, before they were published, by code that shares nothing "
        "with what made them."
    )
    return Section("What was checked", (about, checks_table(run)))


def files_section(folder: Path) -> Section:
    """The released files with their sizes and digests, but for the certificate itself."""
    own = {folder / f"{CERTIFICATE}.{ending}" for ending in ("md", "html")}
    files = [path for path in folder.rglob("*") if path.is_file() and path not in own]
    return Section("What is released", (files_table(folder, files),))


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
