"""A universe too large for margins is named, with a remedy, and does not take those of others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.dissemination.released_tables import counts_in_margins
from spineflow.tasks.pages.document import Document, parts_of, to_html
from spineflow.tasks.products.product import Caution
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.intervals import run_posterior
from spineflow.tasks.topdown.intervals.answers import SpinePosterior
from spineflow.tasks.topdown.intervals.report import write_run_intervals
from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.release.tabulations.run import (
    missing_margins,
    universes_without_margins,
    write_margins,
)

from tests.tasks.topdown.abroad import write_census
from tests.tasks.topdown.declared import load, run_declared

DWELLINGS = """
[[census.tables]]
name = "Flächen"
universe = "dwellings"
query = "Größe"
levels = ["Region"]
[[census.tables]]
name = "Kinder"
universe = "people"
query = "minor"
levels = ["Region"]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Settings and a run whose people are just too many combinations for margins."""
    folder = tmp_path_factory.mktemp("margins-abroad")
    path = write_census(folder / "input")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[budget.people]", f"{DWELLINGS}\n[budget.people]", 1))
    settings = load(path)
    run, _ = run_declared(settings, folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        size = RunPosterior.read(run, settings, "people").size
        assert RunPosterior.read(run, settings, "dwellings").size.numbers < size.numbers
        patch.setattr(run_posterior, "MOST_NUMBERS", size.numbers - 1)
        patch.setattr(run_posterior, "FEW_CELLS", 1)
        write_margins(run, settings)
        yield settings, run


def test_margins_are_made_of_every_universe_that_can_have_them(finished):
    settings, run = finished
    tables = run.unchecked_release / "tables"
    assert [path.name for path in tables.glob("*_margins.*")] != []
    assert {path.stem for path in tables.glob("*_margins.*")} == {"Flächen_margins"}
    assert not missing_margins(run, settings)


def test_what_has_no_margins_is_named_with_why_and_a_remedy(finished, tmp_path):
    settings, run = finished
    ((universe, why),) = universes_without_margins(run, settings).items()
    assert universe == "people"
    for words in ("people have no margins", "age (5 levels)", "5 areas", "declare fewer levels of"):
        assert words in why
    copied = type(run)(shutil.copytree(run.root, tmp_path / "run"))
    copied.unchecked_release.rename(copied.release)
    told = [
        block for block in TOPDOWN.words.summary(copied, settings) if isinstance(block, Caution)
    ]
    assert [str(block) for block in told] == [f"{why}."]
    rows = counts_in_margins(copied.release)
    assert [row["table"] for row in rows] == ["Flächen"] and rows[0]["counts"] > 0
    _, _, sections = parts_of(
        "topdown/templates/margins.md.j2",
        level=0.9,
        in_margins=rows,
        without_margins=universes_without_margins(copied, settings),
    )
    page = to_html(Document("Report", (), tuple(sections)))
    assert "Flächen" in page and "There are no margins: tables of people have no" in page
    facts = TOPDOWN.facts(copied, settings)
    assert facts.context["without_margins"] == (why,)


def test_intervals_that_do_not_fit_are_refused_before_any_answer_is_read(finished, monkeypatch):
    settings, run = finished
    asked = [marginal_query(settings.schema_of("people"), "total")]
    size = RunPosterior.read(run, settings, "people", asked).size
    monkeypatch.setattr(
        run_posterior, "memory_of_machine", lambda: run_posterior.PEAK * 8 * size.numbers - 1
    )

    def never(*_: object) -> None:
        raise AssertionError("estimates are made")

    monkeypatch.setattr(SpinePosterior, "up", never)
    with pytest.raises(InputRefused, match=r"no intervals here: the estimates of people would"):
        list(write_run_intervals(run, settings, ["total"], universe="people"))
