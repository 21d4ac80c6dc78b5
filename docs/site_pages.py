"""Further pages of the site: README and its like, generated references, notebooks with outputs.

`mkdocs.yml` names this module as a hook. Notebooks are stored without outputs. They are run when
the site is made, unless the folder that `SPINEFLOW_NOTEBOOKS` names holds them with their outputs.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"

TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages at the top of the repository, and their names on the site."""

RESULTS = "benchmarks/results"
"""Tables that benchmarks print, which pages of docs/ link to."""

SECONDS = 300
"""How long a notebook's kernel may take to start, and each of its cells."""


def executed(notebooks: Sequence[Path]) -> list[Any]:
    """Notebooks with the outputs of their cells; raises CellExecutionError for one that fails.

    One kernel, which takes seconds to start, runs them in turn, and forgets the names of each.
    """
    import nbformat
    from nbconvert.preprocessors import ExecutePreprocessor

    found = [nbformat.read(notebook, as_version=4) for notebook in notebooks]
    in_turn = nbformat.v4.new_notebook()
    for one in found:
        in_turn.cells.extend([*one.cells, nbformat.v4.new_code_cell("%reset -f")])
    run = ExecutePreprocessor(timeout=SECONDS, startup_timeout=SECONDS, kernel_name="python3")
    run.preprocess(in_turn, {"metadata": {"path": str(notebooks[0].parent)}})
    for one in found:
        one.metadata["language_info"] = in_turn.metadata["language_info"]
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add pages of the top folder, references, results of benchmarks, and notebooks."""
    from mkdocs.structure.files import File, InclusionLevel

    for name, page in TOP.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=_relinked(text, "")))
    for path in sorted((ROOT / RESULTS).glob("*.md")):
        page, content = f"results/{path.name}", path.read_text(encoding="utf-8")
        kind = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, page, content=content, inclusion=kind))
    logging.disable(logging.WARNING)  # Prefect parses docstrings of flows, and warns.
    try:
        references = _references().pages()
    finally:
        logging.disable(logging.NOTSET)
    for page, text in references.items():
        files.append(File.generated(config, page, content=text))
    notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
    for notebook, content in zip(notebooks, _with_outputs(notebooks), strict=True):
        text, figures = _as_markdown(content, notebook.stem)
        page = f"notebooks/{notebook.stem}"
        files.append(File.generated(config, f"{page}.md", content=text))
        for name, content in figures.items():
            files.append(File.generated(config, f"{page}_{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Have links to the pages of the top folder lead to those of the site.

    Blocks that tests leave out are marked `toml ignore`, which the site's Markdown takes for text.
    """
    return _relinked(markdown.replace("```toml ignore", "```toml"), "../")


def _references() -> ModuleType:
    """The module beside this one, which is in no package."""
    path = Path(__file__).with_name("reference_pages.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _relinked(text: str, above: str) -> str:
    for name, page in TOP.items():
        text = text.replace(f"]({above}{name}", f"]({page}")
    text = text.replace(f"](../{RESULTS}/", "](results/").replace("](../../docs/", "](../")
    return text.replace(".ipynb)", ".md)")


def _with_outputs(notebooks: Sequence[Path]) -> list[Any]:
    """Notebooks with their outputs, as they are kept or else by running them."""
    import nbformat

    kept = os.environ.get("SPINEFLOW_NOTEBOOKS")
    if not kept:
        return executed(notebooks)
    return [nbformat.read(Path(kept) / notebook.name, as_version=4) for notebook in notebooks]


def _as_markdown(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook of that name, and the figures in it by their names."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_notebook_node(notebook)
    figures = resources.get("outputs", {})
    for figure in figures:
        text = text.replace(f"]({figure})", f"]({name}_{figure})")
    return text, figures
