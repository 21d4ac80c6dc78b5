"""What `import spineflow` offers, and what it costs to import it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import spineflow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "library.md"

LOADED = """
import json, sys
import spineflow
at_first = [name for name in ("pandas", "numba", "prefect") if name in sys.modules]
for name in spineflow.__all__:
    getattr(spineflow, name)
frame = spineflow.budget("topdown", {
    "preset": "pl94_2020_us",
    "input": {"persons": "p", "units": "u", "geography": "g"},
    "privacy": {"dataset": "d"},
})
late = [name for name in ("prefect", "matplotlib") if name in sys.modules]
print(json.dumps([at_first, late, len(frame)]))
"""


@pytest.mark.slow
def test_importing_it_loads_little_and_no_prefect() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    at_first, late, queries = json.loads(done.stdout)
    assert (at_first, late) == ([], [])
    assert queries > 50


@pytest.mark.parametrize("name", spineflow.__all__)
def test_every_public_name_is_there_documented_and_on_the_page(name: str) -> None:
    public = getattr(spineflow, name)
    assert len(inspect.getdoc(public) or "") > 60
    page = PAGE.read_text(encoding="utf-8")
    assert f"`{name}" in page or f"spineflow.{name}" in page
    if inspect.isfunction(public):
        hints = inspect.get_annotations(public)
        assert "return" in hints and set(inspect.signature(public).parameters) <= set(hints)


def test_other_names_are_unknown() -> None:
    assert spineflow.__version__ == version("spineflow")
    assert set(spineflow.__all__) < set(dir(spineflow))
    with pytest.raises(AttributeError, match="no attribute 'topdwn'"):
        _ = spineflow.topdwn


def test_errors_are_of_one_class() -> None:
    from spineflow.tasks.runs import errors

    own = [
        one for one in vars(errors).values() if getattr(one, "__module__", "") == errors.__name__
    ]
    classes = [one for one in own if inspect.isclass(one)]
    assert classes and all(issubclass(one, spineflow.SpineflowError) for one in classes)


@pytest.mark.slow
def test_what_a_product_is_needs_no_prefect() -> None:
    """Costs and settings are asked for in notebooks, where Prefect takes seconds to load."""
    code = (
        "import sys\n"
        "from spineflow.tasks.products.registry import OF_ONE_INPUT, known\n"
        "models = {known(name).settings for name in OF_ONE_INPUT}\n"
        "assert len(models) == len(OF_ONE_INPUT)\n"
        "assert 'prefect' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name",
    [
        "topdown",
        "detailed_groups",
        "detailed_households",
        "group_sizes",
        "supplemental_dhc",
        "trips",
    ],
)
def test_what_a_ledger_needs_is_in_the_signature(name: str) -> None:
    parameters = inspect.signature(getattr(spineflow, name)).parameters
    for keyword in ("dataset", "ledger"):
        assert parameters[keyword].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[keyword].default is None
