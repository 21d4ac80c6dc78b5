"""The certificate of disclosure avoidance: from a product's facts to a page.

Its content is public. It is written next to the checked release, before the release gets its name,
and derived from the settings that ran: a sentence appears only where they make it true. Its text
comes from the templates, `templates/certificate.md.j2` and the product's own.

Epsilons are of every part at several deltas, and of parts of a record. They follow from the
conversions of rho, and from the exact curve where it is known. `certificate.json` and the tables of
its page have the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..ledger.exact_curve import known_epsilon
from ..ledger.plan import UniversePlan
from ..pages.document import NONE, Document, Table, document_of, table, to_markdown
from ..pages.numbers import format_delta, format_epsilon, format_upper_bound
from ..runs.directory import RunDirectory
from ..runs.files import digests_of, read_record, write_page, write_record, write_text
from ..runs.settings import ProductSettings
from .acceptance import CERTIFICATE
from .budget import PARTS, Cost, ExactEpsilons, noise_table, unknown_parts
from .plan import Plan, losses_table, summarise_statement
from .privacy_curves import Curves, exact_figures
from .reports import checks_table
from .spent import composed_sentence, dataset_spending, draws_table

Exact = Mapping[str, ExactEpsilons]
"""Exact epsilons by the name of a part; unknown ones are missing."""


def exact_of(settings: ProductSettings, plan: Plan, facts: Facts) -> Exact:
    """The exact epsilons of the parts of a release, at the stated deltas, where known."""
    if facts.exact is not None:
        return facts.exact
    known = facts.curves.known if settings.is_private and facts.curves is not None else {}
    return {
        loss.universe: ExactEpsilons(
            {
                str(own.delta): known_epsilon(known[loss.universe], own.delta)
                for own in loss.at_stated_deltas()
            }
        )
        for loss in plan.statement.losses
        if loss.universe in known
    }


def stated_epsilons(loss: UniversePlan, exact: Exact) -> dict[str, Any]:
    """The epsilons of a part at its own delta, and `at` every stated delta."""

    def row(own: UniversePlan) -> dict[str, Any]:
        found = own.epsilons()
        return {
            "delta": str(own.promised.delta + own.delta),
            "conversion": found["tight"],
            "simple": found["simple"],
            "exact": exact.get(own.universe, ExactEpsilons()).whole.get(str(own.delta)),
        }

    at = [row(own) for own in loss.at_stated_deltas()]
    return {"universe": loss.universe, **row(loss), "delta": str(loss.whole_delta), "at": at}


def stated_parts(costs: Iterable[Cost], exact: Exact, kind: str) -> dict[str, dict[str, Any]]:
    """The epsilons of all parts of a record of a kind, by universe."""
    found: dict[str, dict[str, Any]] = {}
    for cost in costs:
        exactly = exact.get(cost.name, ExactEpsilons()).parts.get(kind, {})
        own = {
            name: {"conversion": by_rho, "exact": exactly.get(name)}
            for name, by_rho in cost.parts.get(kind, {}).items()
        }
        found |= {cost.name: own} if own else {}
    return found


def epsilons_table(losses: Sequence[UniversePlan], exact: Exact) -> Table | None:
    """The epsilons of every part at every stated delta."""
    stated = [stated_epsilons(loss, exact) for loss in losses]
    return table(
        {
            "part": own["universe"],
            "at delta": format_delta(row["delta"]),
            **_format_epsilons(row["conversion"], row["exact"]),
            "epsilon (simple)": format_epsilon(row["simple"]),
        }
        for own in stated
        for row in own["at"]
    )


def parts_table(costs: Sequence[Cost], exact: Exact) -> Table | None:
    """The epsilons of the parts of a record that an attacker may not know."""
    return table(
        {"part": cost.name, "unknown to an attacker": part, **_format_epsilons(by_rho, exactly)}
        for cost in costs
        for part, by_rho, exactly in unknown_parts(
            cost, exact.get(cost.name, ExactEpsilons()).parts
        )
    )


def _format_epsilons(by_rho: float | str, exact: float | str | None) -> dict[str, str]:
    own = NONE if exact is None else format_upper_bound(exact)
    return {"epsilon": format_epsilon(by_rho), "exact epsilon": own}


@dataclass(frozen=True)
class Facts:
    """Facts of a product on one of its releases.

    template : of the certificate, by its place below `tasks/`.
    context : the names that it uses in addition to every certificate's.
    curves : the exact curves that the certificate shows, if any; by default those of the plan.
    costs : of parts, with the epsilons of an attribute of a record and of its block; by default
        those of the plan.
    exact : epsilons by part, with which nothing is taken from the plan; by default derived from
        the curves.
    """

    template: str = "products/templates/certificate.md.j2"
    context: Mapping[str, Any] = field(default_factory=dict)
    curves: Curves | None = None
    costs: Sequence[Cost] = ()
    exact: Exact | None = None


def write_certificate(
    run: RunDirectory, settings: ProductSettings, plan: Plan, facts: Facts
) -> None:
    """Write the certificate next to the checked release: as JSON, as Markdown and as HTML.

    Raises BudgetRefused if the ledger cannot be used, or lacks the run's draws.
    """
    folder, manifest = run.unchecked_release, run.read_manifest()
    spent = dataset_spending(settings, {manifest["run_id"]: plan.statement}, is_exact=True)
    exact = exact_of(settings, plan, facts)
    costs = facts.costs if settings.is_private else ()
    record = {
        **plan.to_json(),
        "epsilon": [stated_epsilons(loss, exact) for loss in plan.statement.losses],
        **{kind: stated_parts(costs, exact, kind) for kind in PARTS},
        **record_of_release(run, settings, spent, folder),
    }
    document = certificate_document(
        settings,
        plan,
        facts,
        exact,
        spent=spent,
        checks=checks_table(run),
        files=files_table(folder, released_files(folder)),
        manifest=manifest,
    )
    write_document(document, record, folder)


def certificate_document(
    settings: ProductSettings, plan: Plan, facts: Facts, exact: Exact, **of_run: Any
) -> Document:
    """The certificate as a document; `of_run` has the spent budget, checks, files and manifest."""
    known = [name for name, own in exact.items() if any(own.whole.values())]
    own = {
        "plan": plan,
        "statement": plan.statement,
        "sentence": summarise_statement(plan.statement),
        "losses_table": losses_table,
        "noise_table": noise_table,
        "epsilons": epsilons_table(plan.statement.losses, exact),
        "parts": parts_table(facts.costs, exact),
        "exact": exact_figures(facts.curves, known),
    }
    return certificate_page(facts.template, settings, **own, **of_run, **facts.context)


def certificate_page(template: str, settings: ProductSettings, **context: Any) -> Document:
    """A certificate from a template, which may state the dataset's spent budget."""
    return document_of(
        template,
        settings.stamp,
        settings=settings,
        composed_sentence=composed_sentence,
        draws_table=draws_table,
        **context,
    )


def record_of_release(
    run: RunDirectory, settings: ProductSettings, spent: Mapping[str, Any] | None, folder: Path
) -> dict[str, Any]:
    """A certificate's statements on the dataset's ledger, the checks, the files and the run."""
    manifest = run.read_manifest()
    files = sorted(released_files(folder))
    return {
        "ledger": None
        if spent is None
        else {
            "dataset": settings.privacy.dataset,
            **{name: spent[name] for name in ("rho", "stated_rho", "delta", "epsilon")},
            # The folders of an office's runs are not published.
            "draws": [
                {"product": product, **{k: v for k, v in draw.items() if k != "folder"}}
                for product, own in spent["products"].items()
                for draw in own["draws"]
            ],
        },
        "checks": read_record(run.outcomes)["checks"] if run.outcomes.exists() else [],
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


def write_document(document: Document, record: Mapping[str, Any], folder: Path) -> None:
    """Write a certificate as JSON, as Markdown and as HTML."""
    write_record(folder / f"{CERTIFICATE}.json", record)
    write_text(folder / f"{CERTIFICATE}.md", to_markdown(document))
    write_page(folder / f"{CERTIFICATE}.html", document)


def released_files(folder: Path) -> list[Path]:
    """The files of a release, but for the certificate itself."""
    own = {folder / f"{CERTIFICATE}.{ending}" for ending in ("json", "md", "html")}
    return [path for path in folder.rglob("*") if path.is_file() and path not in own]


def files_table(root: Path, files: Iterable[Path]) -> Table | None:
    """Names below `root`, sizes and digests of files."""
    ordered = sorted(files)
    return table(
        {"file": path.relative_to(root).as_posix(), "bytes": path.stat().st_size, "SHA-256": digest}
        for path, digest in zip(ordered, digests_of(ordered), strict=True)
    )
