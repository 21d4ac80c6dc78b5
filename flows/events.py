"""Events of runs at a Prefect server, for its automations: release, refusal, spending near a cap.

Their contents are public: product and dataset of a run, the sentence of a failed check, the
dataset's spending by its ledger. A command's own server has no automations, and receives none.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from prefect.events import emit_event
from prefect.runtime import flow_run

from ..tasks.ledger.caps import spent_and_caps
from ..tasks.ledger.store import ledger_at
from ..tasks.products.registry import OF_ONE_INPUT
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import CheckFailed
from ..tasks.runs.publication import marker_address
from ..tasks.runs.settings import ProductSettings
from .cancelling import NO_ANSWER
from .servers import is_embedded

PUBLISHED = "spineflow.release.published"
CHECK_FAILED = "spineflow.check.failed"
NEAR_CAP = "spineflow.ledger.near-cap"

NEAR = Fraction(9, 10)
"""The share of a cap from which on a dataset is near it."""


def emit_published(run: RunDirectory, settings: ProductSettings) -> None:
    """Emit that the release of a run exists, and was copied to its place in the settings."""
    place = settings.published_to
    copied = None if place is None else marker_address(place, settings.PRODUCT)
    _emit_event(PUBLISHED, run, settings, {"release": str(run.release), "published": copied})


def emit_failed_check(run: RunDirectory, settings: ProductSettings, error: CheckFailed) -> None:
    """A check of the result has failed; the release is withheld."""
    _emit_event(CHECK_FAILED, run, settings, {"message": str(error)})


def emit_near_cap(run: RunDirectory, settings: ProductSettings) -> None:
    """Emit if the dataset's spending is at least `NEAR` of its cap."""
    if not settings.is_private or not settings.draws_noise:
        return
    spent, caps = spent_and_caps(ledger_at(Path(settings.privacy.ledger)), settings.privacy.dataset)
    if caps.rho is not None and spent.parameter >= NEAR * caps.rho:
        rest = caps.rho - spent.parameter
        facts = {"rho": str(spent.parameter), "cap": str(caps.rho), "remaining": str(rest)}
        _emit_event(NEAR_CAP, run, settings, facts)


def _emit_event(
    event: str, run: RunDirectory, settings: ProductSettings, payload: Mapping[str, str | None]
) -> None:
    """Send an event of a run; its resource is the dataset, its flow run and tag are related.

    The products of a run emit their own events, and a search releases no one's data.
    """
    if is_embedded() or settings.PRODUCT not in OF_ONE_INPUT:
        return
    dataset = settings.privacy.dataset
    facts = {"product": settings.PRODUCT, "dataset": dataset, "run": run.read_manifest()["run_id"]}
    related = [{"prefect.resource.id": "prefect.tag.spineflow", "prefect.resource.role": "tag"}]
    if flow_run.id is not None:
        id_ = f"prefect.flow-run.{flow_run.id}"
        related.append({"prefect.resource.id": id_, "prefect.resource.role": "flow-run"})
    with suppress(*NO_ANSWER):
        emit_event(
            event=event,
            resource={
                "prefect.resource.id": f"spineflow.dataset.{dataset}",
                "prefect.resource.name": dataset,
                "spineflow.product": settings.PRODUCT,
            },
            related=related,
            payload={**facts, **payload},
        )
