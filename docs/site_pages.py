"""What the site has beside the pages of docs/: the README and its like, and notebooks with outputs.

`mkdocs.yml` names this module as a hook. Notebooks are stored without outputs. They are run when
the site is made, unless the folder that `SPINEFLOW_NOTEBOOKS` names holds them with their outputs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"

TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages at the top of the repository, and what they are called on the site."""

SECONDS = 300
"""How long a notebook's kernel may take to start, and each of its cells."""


def executed(notebook: Path) -> Any:
    """A notebook with the outputs of its cells; raises CellExecutionError for one that fails."""
    import nbformat
    from nbconvert.preprocessors import ExecutePreprocessor

    found = nbformat.read(notebook, as_version=4)
    run = ExecutePreprocessor(timeout=SECONDS, startup_timeout=SECONDS, kernel_name="python3")
    run.preprocess(found, {"metadata": {"path": str(notebook.parent)}})
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the top folder, and those of the notebooks with their figures."""
    from mkdocs.structure.files import File

    for name, page in TOP.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=_relinked(text, "")))
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        text, figures = _as_markdown(notebook)
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


def _relinked(text: str, above: str) -> str:
    for name, page in TOP.items():
        text = text.replace(f"]({above}{name}", f"]({page}")
    return text


def _as_markdown(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and the figures in it by their names."""
    import nbformat
    from nbconvert import MarkdownExporter

    kept = os.environ.get("SPINEFLOW_NOTEBOOKS")
    stored = None if not kept else Path(kept) / notebook.name
    found = executed(notebook) if stored is None else nbformat.read(stored, as_version=4)
    text, resources = MarkdownExporter().from_notebook_node(found)
    figures = resources.get("outputs", {})
    for name in figures:
        text = text.replace(f"]({name})", f"]({notebook.stem}_{name})")
    return text, figures
