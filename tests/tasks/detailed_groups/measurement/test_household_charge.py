"""What a run of detailed households with noise is charged for, and what its comparison tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.detailed_groups.ingest.ingest import run_parameters
from spineflow.tasks.detailed_groups.measurement import plan_of_run
from spineflow.tasks.detailed_groups.product import DETAILED_HOUSEHOLDS
from spineflow.tasks.detailed_groups.release.accuracy import comparison_facts
from spineflow.tasks.products.comparison import read_errors

from tests.flows.household_input import write_detailed_households
from tests.flows.in_process import judged_once


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    """A run with noise that can be repeated, and its settings."""
    folder = tmp_path_factory.mktemp("households")
    file = write_detailed_households(folder)
    own = DETAILED_HOUSEHOLDS
    settings = own.load(file, ["input.confidential=false", "privacy.seed=3"])
    run = prepare(settings, folder / "run")
    with judged_once():
        call_stages(run, settings)
    return run, settings


def test_errors_and_facts_of_a_run_are_those_of_its_release(finished) -> None:
    run, settings = finished
    errors = read_errors(run)
    assert errors is not None and len(errors)
    parameters = run_parameters(run, settings)
    facts = comparison_facts(run, settings)
    assert facts == {"definition": "zcdp", "total": f"{float(parameters.total):.6g}"}
    shown = replace(DETAILED_HOUSEHOLDS).compared(run, settings)
    assert shown.facts["dataset"] == "people"
    document, plan = DETAILED_HOUSEHOLDS.words.report, plan_of_run(run, settings)
    assert document is not None
    with_errors, without = (document(run, settings, plan, own) for own in (errors, None))
    titles = [[section.title for section in page.sections] for page in (with_errors, without)]
    assert set(titles[1]) < set(titles[0])
