"""Seeded runs write what they wrote when their digests were recorded.

A run takes a second and more, and all of them stay among the quick tests but those of `SELDOM`,
whose products run with other presets as well: a change of form that changes a release must not
pass unseen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded.record import recorded
from tests.recorded.runs import POPULATION, RUNS, digests, make

SELDOM = ("one population pr",)


def test_every_run_is_recorded() -> None:
    assert set(recorded()) == set(RUNS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak(40)] * (name in SELDOM)) for name in RUNS]
)
def test_a_seeded_run_writes_what_was_recorded(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name == POPULATION:
        folder = request.getfixturevalue("population_run").root.parent
    else:
        folder = tmp_path
        make(RUNS[name], folder)
    known, found = recorded()[name], digests(RUNS[name], folder)
    differing = sorted(place for place in known | found if known.get(place) != found.get(place))
    assert not differing, (
        f"the run {name!r} differs from what is recorded in {', '.join(differing)}. If "
        "that is meant, write the digests anew by `make record`, and say why in CHANGELOG.md. See "
        f"the files of the run by `python -m tests.recorded {name!r} --folder FOLDER`."
    )
