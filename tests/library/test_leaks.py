"""Nothing confidential is in what the library returns, prints or raises.

The values are planted as in `tests/flows/test_canary.py`: some break the rules, some do not, and
steps fail with errors that quote them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import spineflow
from spineflow.tasks.runs import steps as frame

from tests.flows.test_canary import QUOTED, canaries_in, leaks_below
from tests.library import towns

pytestmark = pytest.mark.slow

ID = "986420975"
"""An identifier that no column of the census is made of."""

READ: dict[str, Callable[[spineflow.Run], Any]] = {
    "run": repr,
    "settings": lambda run: run.settings,
    "measurements": lambda run: run.measurements(),
    "estimates": lambda run: run.estimates(),
    "table": lambda run: run.table("AGE_SEX"),
    "margins": lambda run: run.margins("AGE_SEX"),
    "microdata": lambda run: run.microdata(),
    "checks": lambda run: run.checks,
    "stages": lambda run: run.stages,
    "budget": lambda run: run.budget,
    "guarantee": lambda run: run.guarantee,
    "intervals": lambda run: run.make_intervals("sex * age", "section"),
}


def planted(**values: str) -> pd.DataFrame:
    """The residents, each with the identifier; the eighth with further values."""
    found = towns.residents().assign(id=ID).astype({"age": object})
    for name, value in values.items():
        found.loc[7, name] = value
    return found.astype({"age": str})


def attempted(folder: Path, residents: pd.DataFrame) -> str:
    """What is raised by a release, as an interpreter would print it."""
    with pytest.raises(spineflow.SpineflowError) as refused:
        spineflow.topdown(
            {"residents": residents, "areas": towns.areas()},
            towns.settings(),
            folder / "run",
            dataset="town",
            ledger=folder / "ledger.db",
        )
    return "".join(traceback.format_exception(refused.value)) + repr(refused.value.__dict__)


def texts(found: Any) -> bytes:
    """All that a frame, or another value, holds."""
    return (found.to_csv() if isinstance(found, pd.DataFrame) else repr(found)).encode()


@pytest.mark.parametrize(
    "values", [{"age": "canaryage"}, {"sex": "canaryrace"}, {"section": "canaryblock"}]
)
def test_a_refusal_quotes_no_value(tmp_path: Path, capfd, values: dict[str, str]) -> None:
    """Threat model: confidential values in server, logs, pages or notebooks."""
    told = attempted(tmp_path, planted(**values))
    shown = capfd.readouterr()
    assert canaries_in(f"{told}{shown.out}{shown.err}".encode()) == []
    assert leaks_below(tmp_path) == {}


def test_an_error_of_a_step_quotes_no_value(tmp_path: Path, capfd, monkeypatch) -> None:
    """Threat model: confidential values in server, logs, pages or notebooks."""
    original = frame.load_run

    def failing(root: str, *arguments: Any) -> Any:
        if (Path(root) / "spine").exists():
            raise ValueError(QUOTED)
        return original(root, *arguments)

    monkeypatch.setattr(frame, "load_run", failing)
    told = attempted(tmp_path, planted())
    shown = capfd.readouterr()
    assert "failed with ValueError" in told
    assert canaries_in(f"{told}{shown.out}{shown.err}".encode()) == []
    kept = (tmp_path / "run" / "confidential" / "errors").iterdir()
    assert any(QUOTED in path.read_text() for path in kept)
    assert leaks_below(tmp_path) == {}


def test_nothing_that_is_read_of_a_run_has_a_planted_value(tmp_path: Path, capfd) -> None:
    """Threat model: confidential values in server, logs, pages or notebooks."""
    run = spineflow.topdown(
        {"residents": planted(), "areas": towns.areas()},
        towns.settings(),
        tmp_path / "run",
        dataset="town",
        ledger=tmp_path / "ledger.db",
    )
    assert canaries_in((run.path / "confidential/input/residents.parquet").read_bytes()) == [ID]
    for name, read in READ.items():
        assert canaries_in(texts(read(run))) == [], name
    names = {name for name in vars(spineflow.Run) if not name.startswith(("_", "plot_"))}
    own = {"tables", "intervals", "make_intervals", "report", "parts", "errors"}
    assert names <= {*READ, *own}, "a new way to read a run is to be read here"
    shown = capfd.readouterr()
    assert canaries_in(f"{shown.out}{shown.err}".encode()) == []
    assert leaks_below(tmp_path) == {}
