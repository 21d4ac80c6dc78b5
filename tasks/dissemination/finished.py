"""A finished release for templates: its plan, its certificate and derived values."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..pages.template import render_template
from ..products.acceptance import CERTIFICATE
from ..products.plan import read_plan
from ..products.statement import combine_parts
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.files import read_record
from .office import Office

TEMPLATES = Path(__file__).with_name("templates")


def finished_release(run: RunDirectory, office: Office) -> dict[str, Any]:
    """Values of a run and its release that templates may use, by name.

    Raises InputRefused for a run without a certified release, and for one that guarantees nothing.
    """
    path = run.release / f"{CERTIFICATE}.json"
    if not path.exists():
        raise InputRefused(
            f"{run.root} has no {CERTIFICATE}.json in {run.release.name}/; name a finished run of "
            "version 0.3 or later."
        )
    certificate = read_record(path)
    if "certificates" in certificate:
        parts = ", ".join(str(run.root / name) for name in certificate["certificates"])
        raise InputRefused(f"{run.root} is a run of several products; name one of {parts}.")
    plan = read_plan(run)
    if plan.statement.why_not is not None:
        raise InputRefused(
            f"{run.root} guarantees nothing, so that there is nothing to register: "
            f"{plan.statement.why_not}."
        )
    if certificate["ledger"] is None:
        raise InputRefused(
            f"{run.root} measured nothing; name the run whose measurements it was made from."
        )
    losses = plan.statement.losses
    measures = [own for universe in plan.universes for own in universe.measured]
    draws = certificate["ledger"]["draws"]
    return {
        "plan": plan,
        "certificate": certificate,
        "office": office,
        "version": version("spineflow"),
        "together": combine_parts(plan.statement),
        "losses": {loss.universe: loss for loss in losses},
        "units": [f"one record of {loss.universe}" for loss in losses],
        "zcdp": not any(loss.is_pure for loss in losses),
        "own_delta": str(sum((loss.promised.delta for loss in losses), Fraction(0))),
        "largest": max(own["conversion"] for own in certificate["epsilon"]),
        "measures": measures,
        "answers": sum(own.answers or 0 for own in measures),
        "deviations": sorted(own.deviation for own in measures),
        "mechanisms": sorted({own.mechanism.replace("_", " ") for own in plan.universes}),
        "runs": {
            "draws": len(draws),
            "runs": len({draw["run_id"] for draw in draws}),
            "products": sorted({draw["product"] for draw in draws}),
        },
        "checks": sorted({own["name"].replace("_", " ") for own in certificate["checks"]}),
        "has_microdata": any(name.startswith("mdf_") for name in certificate["files"]),
    }


def template(name: str) -> dict[str, dict[str, str]]:
    """The tables of a template file, unrendered."""
    return tomllib.loads((TEMPLATES / f"{name}.toml").read_text(encoding="utf-8"))


def texts(name: str, released: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The tables of a template file, rendered with the values of a release."""
    return {
        section: {key: render_template(text, released) for key, text in own.items()}
        for section, own in template(name).items()
    }
