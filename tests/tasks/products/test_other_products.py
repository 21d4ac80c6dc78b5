"""Every sentence of the other products' certificates follows the setting that makes it true."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from spineflow.tasks.group_sizes.release import certificate as group_sizes
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.group_sizes.workload import statement as sizes
from spineflow.tasks.group_sizes.workload.plan import make_plan
from spineflow.tasks.pages.document import Document, to_markdown
from spineflow.tasks.products.certificate import Facts
from spineflow.tasks.products.plan import ExactFact
from spineflow.tasks.products.statement import Statement, guarantee_section
from spineflow.tasks.runs.settings_files import load_settings


def said(facts: Facts, statement: Statement, exact: Iterable[ExactFact]) -> str:
    exact_facts = [f"{item.subject}: {item.fact}" for item in exact]
    section = guarantee_section(statement, facts.figures, facts.warnings)
    text = to_markdown(Document("", (facts.made, facts.public, *exact_facts), (section,)))
    return " ".join(text.split())


def sizes_text(folder: Path, *overrides: str, **plan) -> str:
    file = folder / "settings.toml"
    file.write_text(
        '[input]\nsizes = "s.parquet"\nregions = "r.csv"\n[invariants]\ngroups = true\n'
        '[privacy]\ndataset = "d"\nepsilon = "1"\n'
    )
    settings = load_settings(GroupSizesSettings, file, presets=folder, overrides=overrides)
    made = make_plan(
        names=["nation", "state"],
        n_regions=[1, 5],
        groups=1234,
        **{"sizes": (1, 20), "epsilon": settings.epsilon} | plan,
    )
    facts = group_sizes.facts_of(settings, made)
    return said(facts, sizes.statement_of(settings, made), sizes.exact_of(made))


def test_plans_cost_what_their_certificates_say(tmp_path: Path) -> None:
    assert f"rho {Fraction(1, 2)}" not in sizes_text(tmp_path)
    assert "| 2 |" in sizes_text(tmp_path), "2 epsilon^2 of bounded zCDP"
