"""Reports of runs: the front page of every product's, and how it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..ledger.plan import UniversePlan
from ..pages.document import NONE, Block, Details, Document, FrontPage, Link, Table, document_of
from ..runs.directory import RunDirectory
from ..runs.files import read_record
from ..runs.settings import ProductSettings
from .acceptance import CERTIFICATE, warnings_of
from .budget import noise_table
from .plan import Plan, losses_table, summarise_statement
from .spent import spent_in_brief

MOST_COUNTS = 8
"""Released counts of a table shown on the front page."""


def report_document(
    run: RunDirectory,
    settings: ProductSettings,
    plan: Plan,
    template: str = "products/templates/report.md.j2",
    *,
    counts: Sequence[Block] = (),
    links: Sequence[Link] = (),
    **context: Any,
) -> Document:
    """The report of a run: its front page, the product's own sections, checks, seconds, digests.

    Args:
        template: template of the report, by its path below `tasks/`.
        counts: the first of the released counts, which a withheld release does not show.
        links: pages of the product's own, in addition to the certificate and the released files.
        context: names that the template uses in addition to every report's.
    """
    passed, n_checks = passed_and_all(run)
    verdict = f"Released: all {n_checks} independent checks of the result passed."
    if passed < n_checks:
        verdict = f"Withheld: {n_checks - passed} of {n_checks} independent checks failed."
    links = (*certificate_links(run), *links, *_file_links(run))
    return document_of(
        template,
        settings.stamp,
        FrontPage(verdict, passed == n_checks, summarise_statement(plan.statement), (), links),
        provenance(run),
        folded=True,
        settings=settings,
        plan=plan,
        warnings=warnings_of(run),
        counts=counts if passed == n_checks else (),
        spent=spent_in_brief(settings),
        checks=checks_table(run),
        stages=stages_blocks(run),
        losses=losses_table(plan.statement.losses) if plan.statement.losses else None,
        noise_table=noise_table,
        noise_of=noise_of,
        budget_of=budget_of,
        DEVIATION="standard deviation of the noise",
        **context,
    )


def plain_document(
    run: RunDirectory, settings: ProductSettings, plan: Plan, errors: object = None
) -> Document:
    """The report of a product without its own words: its measures and exact facts."""
    tables = sorted(run.release.glob("*.parquet"))
    return report_document(run, settings, plan, counts=first_rows(tables[0]) if tables else ())


def provenance(run: RunDirectory) -> tuple[str]:
    """The last line of a report: its run, settings and code."""
    manifest = run.read_manifest()
    return (
        f"Run {manifest['run_id']}, begun {manifest['created']}. Settings "
        f"{manifest['settings_digest'][:12]}, code {manifest['code_version']}.",
    )


def first_rows(file: Path, columns: Sequence[str] | None = None) -> tuple[Block, ...]:
    """The first rows of a released Parquet table, unchanged, for a front page; by default
    of all columns. Numbers before the last column are codes, shown unformatted. Empty for a
    release that was withheld.
    """
    if not file.exists():
        return ()
    import pyarrow.parquet as pq  # Slow to load, and only reports of releases have tables.

    with pq.ParquetFile(file) as table:
        n_rows, names = table.metadata.num_rows, columns or table.schema_arrow.names
        batches = table.iter_batches(batch_size=MOST_COUNTS, columns=list(names))
        found = next(batches).select(names).to_pylist() if n_rows else []
    words = f"{file.name} has {n_rows:,} rows; the first of them:"
    rows = tuple(
        (*(NONE if row[name] is None else str(row[name]) for name in names[:-1]), row[names[-1]])
        for row in found
    )
    return words, Table(tuple(name.replace("_", " ") for name in names), rows, names[-1])


def certificate_links(run: RunDirectory) -> tuple[Link, ...]:
    """The link to a run's certificate, from its report, where it has one."""
    page = f"{CERTIFICATE}.html"
    return (Link("Certificate", f"../release/{page}"),) if (run.release / page).exists() else ()


def _file_links(run: RunDirectory) -> Iterable[Link]:
    """Links from a report to the released files and to the rules on the input, as there are."""
    if (run.release / "tables").is_dir():
        yield Link("Tables", "../release/tables/")
    yield Link("All released files", "../release/")
    if (run.checks / "data_docs" / "index.html").exists():
        yield Link("Rules on the input", "../validation/data_docs/index.html")


def passed_and_all(run: RunDirectory) -> tuple[int, int]:
    """Numbers of passed checks of the result, and of all."""
    checks = _checks(run)
    return sum(bool(check["passed"]) for check in checks), len(checks)


def checks_table(run: RunDirectory) -> Table:
    """The public outcome of every check on the result."""
    rows = tuple(
        (
            check["universe"],
            check["name"].replace("_", " "),
            "passed" if check["passed"] else "FAILED",
            check["detail"],
        )
        for check in _checks(run)
    )
    return Table(("universe", "check", "outcome", "what it saw"), rows, "outcome")


def _checks(run: RunDirectory) -> list[dict]:
    return read_record(run.outcomes)["checks"]


def stages_blocks(run: RunDirectory) -> tuple[Block, ...]:
    """Seconds of work of every finished stage; the report's own are known once it is written."""
    done = run.read_manifest()["stages"]
    seconds = {n: float(stage["seconds"] or 0) for n, stage in done.items() if n != "report"}
    stages = Table(("stage", "seconds"), tuple(seconds.items()))
    return f"{sum(seconds.values()):.0f} seconds in all.", Details("Stage by stage", (stages,))


def budget_of(universe: UniversePlan) -> dict[str, float]:
    """The share of every level, in percent."""
    return {measure.level: 100 * float(measure.share) for measure in universe.measures}


def noise_of(universe: UniversePlan) -> dict[str, float]:
    """The standard deviation of every measure's noise, by level, and by query where there are
    several at a level."""
    noisy = [own for own in universe.measures if own.noise is not None]
    is_one_a_level = len({own.level for own in noisy}) == len(noisy)
    return {
        own.level if is_one_a_level else f"{own.level} {own.query}": own.deviation for own in noisy
    }
