"""The notebooks run as they stand and show nothing of the table that they protect; the site."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs the extra spineflow[docs]")
pytest.importorskip("mkdocs", reason="needs the extra spineflow[docs]")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

CANARY = "canary986420975"

PLANTED = f'residents["id"] = "{CANARY}"'
"""A cell that plants a recognisable value in every row of the residents."""

REFUSED = 'sex="x"', f'sex="{CANARY}"'
"""A value that a rule refuses, and what stands for it."""


def module() -> object:
    """What makes the site's pages."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def with_canaries(notebook: Path, folder: Path) -> Path:
    """A copy of a notebook in whose residents values have been planted."""
    content = nbformat.read(notebook, as_version=4)
    made = [n for n, cell in enumerate(content.cells) if "residents = pd.DataFrame" in cell.source]
    for place in made:
        content.cells.insert(place + 1, nbformat.v4.new_code_cell(PLANTED))
    for cell in content.cells:
        cell.source = cell.source.replace(*REFUSED)
    file = folder / notebook.name
    nbformat.write(content, file)
    return file


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the notebooks, run on tables with planted values."""
    folder, planted = (tmp_path_factory.mktemp(name) for name in ("executed", "planted"))
    copies = [with_canaries(notebook, planted) for notebook in NOTEBOOKS]
    for notebook, run in zip(NOTEBOOKS, module().executed(copies), strict=True):
        nbformat.write(run, folder / notebook.name)
    return folder


def outputs_of(notebook: Path) -> list[dict]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", ())]


def test_notebooks_are_stored_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert code and all(not cell["outputs"] for cell in code)
        assert all(cell["execution_count"] is None for cell in code)


@pytest.mark.soak(26)
def test_no_output_shows_a_planted_value(executed: Path) -> None:
    """Neither tables, nor sentences of refusals, nor what stands on standard error.

    Threat model: confidential values in server, logs, pages or notebooks.
    """
    sources = {path.stem: path.read_text(encoding="utf-8") for path in executed.iterdir()}
    assert sources["first_release"].count(CANARY) == 2
    for notebook in NOTEBOOKS:
        outputs = outputs_of(executed / notebook.name)
        shown = "".join(json.dumps(output) for output in outputs if not is_figure(output))
        assert len(shown) > 1000
        assert CANARY not in shown, notebook.name
        assert "Traceback" not in shown and "WARNING" not in shown


def is_figure(output: dict) -> bool:
    return "image/png" in output.get("data", {})


@pytest.mark.soak
def test_the_site_is_made_without_a_broken_link(executed: Path, tmp_path: Path) -> None:
    """Strictly: a link or an anchor that leads nowhere is an error, a page left out of it too."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env=os.environ | {"SPINEFLOW_NOTEBOOKS": str(executed)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    pages = {page.name for page in (tmp_path / "site").glob("*.html")}
    assert {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")} < pages
    assert {"index.html", "changelog.html", "contributing.html"} < pages
    reference = (tmp_path / "site" / "reference.html").read_text(encoding="utf-8")
    import spineflow

    for name in spineflow.__all__:
        assert f'id="spineflow.{name}"' in reference, name
    shown = (tmp_path / "site" / "notebooks" / "first_release.html").read_text(encoding="utf-8")
    assert "<table" in shown and "AGE_SEX" in shown
