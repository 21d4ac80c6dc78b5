"""Every sentence of the other products' certificates follows the setting that makes it true."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from spineflow.tasks.group_sizes import measurement as sizes
from spineflow.tasks.group_sizes.costs import universe_plan as sizes_plan
from spineflow.tasks.group_sizes.plan import make_plan
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.products.budget import Cost
from spineflow.tasks.products.certificate import Facts
from spineflow.tasks.products.plan import Plan
from spineflow.tasks.runs.settings_files import load_settings

from tests.certificates import certificate_text


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
    facts = Facts("group_sizes/templates/certificate.md.j2", {"measured": made})
    cost = Cost(sizes_plan(made))
    return certificate_text(
        settings, Plan.of(settings, [cost], sizes.statement_of(made), sizes.exact_of(made)), facts
    )


def test_plans_cost_what_their_certificates_say(tmp_path: Path) -> None:
    assert f"rho {Fraction(1, 2)}" not in sizes_text(tmp_path)
    assert "| 2 |" in sizes_text(tmp_path), "2 epsilon^2 of bounded zCDP"
