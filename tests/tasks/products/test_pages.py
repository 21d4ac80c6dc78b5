"""Certificates of finished runs: the ledger's figures, the files' digests, nothing confidential."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.product import GROUP_SIZES
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.acceptance import publish_release
from spineflow.tasks.products.certificate import write_certificate
from spineflow.tasks.products.spent import composed_sentence
from spineflow.tasks.runs.directory import RunDirectory, start_run

PARTS = ("first", "second")


@pytest.fixture(scope="module")
def runs(run_groups, tmp_path_factory):
    """Two private runs on one dataset, one after the other, released with their certificates."""
    folder = tmp_path_factory.mktemp("certified")
    file = write_dataset(folder, census_like(groups=400, counties=4, states=2, largest=20))
    parent = RunDirectory(folder / "run")
    start_run(parent, product="products", settings_text="")
    for name in PARTS:
        run, settings = run_groups(file, parent.root / name)
        GROUP_SIZES.check_run(run, settings)
        plan, facts = (
            GROUP_SIZES.plan_of(run, settings),
            GROUP_SIZES.facts(run, settings),
        )
        publish_release(run, partial(write_certificate, run, settings, plan, facts))
    return parent, settings


def read(folder: Path) -> str:
    return (folder / "certificate.md").read_text(encoding="utf-8")


def spent_of(settings) -> dict:
    ledger = open_ledger(Path(settings.privacy.ledger), must_exist=True)
    return summary(ledger, is_exact=True)["datasets"][settings.privacy.dataset]


def test_a_certificate_has_the_ledgers_figures_at_its_time(runs) -> None:
    parent, settings = runs
    first, second = (read(parent.root / name / "release") for name in PARTS)
    spent = spent_of(settings)
    assert composed_sentence(spent) in second and composed_sentence(spent) not in first
    assert f"rho {Fraction(spent['rho'])}" in second
    assert "rho 2, the mechanisms' own delta 0" in first, "2 epsilon^2 at epsilon 1, once"
    ids = [RunDirectory(parent.root / name).read_manifest()["run_id"] for name in PARTS]
    assert ids[0] in first and ids[1] not in first
    assert all(run_id in second for run_id in ids)


def test_a_run_that_is_not_private_is_not_charged_and_says_so(run_groups, tmp_path: Path) -> None:
    file = write_dataset(tmp_path, census_like(groups=400, counties=4, states=2, largest=20))
    file.write_text(file.read_text() + "seed = 1\n")
    run, settings = run_groups(file, tmp_path / "run")
    GROUP_SIZES.check_run(run, settings)
    plan, facts = GROUP_SIZES.plan_of(run, settings), GROUP_SIZES.facts(run, settings)
    write_certificate(run, settings, plan, facts)
    text = read(run.unchecked_release)
    assert "NOT PRIVATE" in text and "Nothing is guaranteed" in text
    assert "not charged to a ledger" in text and "protects anybody" in text
    assert not Path(settings.privacy.ledger).exists()
