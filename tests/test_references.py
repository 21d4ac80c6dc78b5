"""Papers are cited by the names that docs/references.md gives them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFERENCES = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
SOURCES = sorted(
    path
    for folder in ("flows", "tasks", "geography", "validation", "docs", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".toml", ".md") and path.name != "references.md"
)
MODULES = [
    path for path in SOURCES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] != "tests"
]

CITATION = r"\[([A-Z][A-Za-z]+\d{4})\]"
ENTRY = rf"^- \*\*{CITATION}\*\* (.+?)(?=^- |^#|\Z)"
IDENTIFIER = r"doi:10\.\d{4,}/\S+|arXiv:\d{4}\.\d{5}|ISBN [\dX-]{10,}|https://"
PLACE_IN_A_PAPER = r"\b(Theorem|Lemma|Corollary|Model|Algorithm)s? \d|\bthe paper\b|\bpaper's\b"


def entries() -> dict[str, str]:
    return dict(re.findall(ENTRY, REFERENCES, re.MULTILINE | re.DOTALL))


def docstrings(path: Path) -> str:
    """All strings that stand alone: docstrings of modules, functions, classes and names."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    expressions = [node.value for node in nodes if isinstance(node, ast.Expr)]
    return "\n".join(str(e.value) for e in expressions if isinstance(e, ast.Constant))


def test_citations_and_references_are_the_same() -> None:
    cited = {
        name: path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for name in re.findall(CITATION, path.read_text(encoding="utf-8"))
    }
    missing = {name: place for name, place in cited.items() if name not in entries()}
    assert not missing, "docs/references.md has no such entry"
    assert not set(entries()) - set(cited), "nothing cites these entries of docs/references.md"
    assert len(re.findall(r"^- \*\*", REFERENCES, re.MULTILINE)) == len(entries())


def test_references_have_authors_year_title_and_identifier() -> None:
    incomplete = {}
    for name, entry in entries().items():
        text = " ".join(entry.split())
        is_whole = (
            re.match(r"[^(*]+ \(\d{4}\)\. \*[^*]+\*", text)
            and f"({name[-4:]})" in text  # The name ends with the year.
            and re.search(IDENTIFIER, text)
        )
        if not is_whole:
            incomplete[name] = text
    assert not incomplete


def test_modules_say_which_paper_they_mean() -> None:
    unnamed, otherwise = [], []
    for path in MODULES:
        text, place = docstrings(path), path.relative_to(ROOT).as_posix()
        if re.search(PLACE_IN_A_PAPER, text, re.IGNORECASE) and not re.search(CITATION, text):
            unnamed.append(place)
        if re.search(r"\b[A-Z][a-z]+(?: et al\.)?,? \(?(?:19|20)\d\d\)", text):
            otherwise.append(place)
    assert not unnamed, "name a paper without its entry in docs/references.md"
    assert not otherwise, "cite by the names of docs/references.md"
