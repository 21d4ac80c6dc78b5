"""What a certificate of households states is what the ledger is charged, under either noise; and
what the front page shows of it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.ingest.generate import generate_specification
from spineflow.tasks.detailed_groups.ingest.ingest import parameters_of
from spineflow.tasks.detailed_groups.settings import DetailedHouseholdsSettings
from spineflow.tasks.detailed_groups.workload.guarantee import statement_of, tabulation_plan
from spineflow.tasks.products.plan import combine_parts, least_charge


def settings_of(folder: Path, **mechanism: object) -> DetailedHouseholdsSettings:
    generate_specification(folder, run_pr=True, households=True)
    tables = dict.fromkeys(("persons", "units", "geography", "groups"), "t")
    return DetailedHouseholdsSettings.model_validate(
        {
            "input": {"parameters": str(folder), **tables},
            "privacy": {"dataset": "d"},
            "mechanism": mechanism,
        }
    )


@pytest.mark.parametrize("passes", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_the_statement_is_covered_by_the_charge(
    tmp_path: Path, definition: str, passes: tuple[bool, bool]
) -> None:
    settings = settings_of(tmp_path, definition=definition, run_us=passes[0], run_pr=passes[1])
    parameters = parameters_of(settings)
    statement = statement_of(parameters)
    drawn = [tabulation_plan(parameters, name).promised.bounded_rho for name in parameters.budgets]
    assert least_charge(statement).parameter == sum(drawn)
    assert combine_parts(statement).guarantee.parameter == parameters.total
    assert parameters.total == (Fraction(17, 2) if passes[0] else 6)
