"""The pages of docs/ stay true: every rule, setting, preset, figure and link in them is checked."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel
from spineflow.flows.demo import DEMOS
from spineflow.flows.evidence import CensusEvidenceSettings
from spineflow.flows.form import PRESET_NAMES
from spineflow.flows.products import ProductsSettings
from spineflow.flows.replicates import AnyTuneSettings
from spineflow.geography.rules import GEOLEVEL_ORDER
from spineflow.tasks.census.attribute_declarations import CodeRange
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.detailed_groups.settings import (
    DetailedGroupsSettings,
    DetailedHouseholdsSettings,
)
from spineflow.tasks.dissemination.registration import read_office
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.supplemental_dhc.settings import SupplementalDhcSettings
from spineflow.tasks.tables.findings import Finding
from spineflow.tasks.topdown.design.settings import DesignSettings
from spineflow.tasks.topdown.published.layout import EstimateSettings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import refuse_no_spine
from spineflow.tasks.topdown.workload.costs import cost_of
from spineflow.tasks.trips.charge import TripsDesignSettings
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.validation.rules import CENSUS_RULES

from benchmarks.error_by_rho import ABLATIONS, QUERIES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
PAGES = (*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md")), *RESULTS)

MODEL_OF_PAGE: dict[str, type[ProductSettings]] = {
    "design_of_a_budget": DesignSettings,
    "detailed_groups": DetailedGroupsSettings,
    "detailed_households": DetailedHouseholdsSettings,
    "group_sizes": GroupSizesSettings,
    "products": ProductsSettings,
    "published_measurements": EstimateSettings,
    "supplemental_dhc": SupplementalDhcSettings,
    "trips": TripsSettings,
    "evidence": CensusEvidenceSettings,
    "tuning": AnyTuneSettings,
}

MODEL_OF_DESIGNS = {"trips": TripsDesignSettings}
"""Models of the blocks of a product's page that have a section [design]."""


def loaded(path: Path) -> ModuleType:
    """A module that belongs to no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


references = loaded(DOCS / "reference_pages.py")
GENERATED = [f"reference/{name}.md" for name in references.PAGES]

WHOLE_FILE = """\
preset = "pl94_2020_us"
[input]
persons = "p"
units = "u"
geography = "g"
[privacy]
dataset = "d"
"""


@pytest.fixture(scope="module")
def input_page() -> str:
    return (DOCS / "input.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def settings_page() -> str:
    return (DOCS / "settings.md").read_text(encoding="utf-8")


def settings_of(folder: Path, text: str) -> TopdownSettings:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    settings = load_settings(TopdownSettings, path, presets=PRESETS)
    refuse_no_spine(settings)
    return settings


def test_the_message_shown_is_that_of_the_command(input_page: str) -> None:
    rule = next(rule for rule in CENSUS_RULES if rule.name == "cenrace_is_valid")
    finding = Finding("persons.parquet", rule.column, rule.statement, rule.remedy)
    assert f"\nspineflow: {finding.sentence()}\n" in input_page


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return references.pages()


def test_the_reference_has_every_setting_with_its_meaning(generated: dict[str, str]) -> None:
    page = generated["reference/settings.md"]
    for model in references.products().values():
        for place, section in references.sections(model):
            notes = references.field_notes(section)
            for name, field in section.model_fields.items():
                is_literal = references.type_of(field).count("`") == 2
                is_section = any(references.section_models(field.annotation))
                assert notes.get(name) or is_literal or is_section, f"{place} {name}"
                assert is_section or f"| `{field.alias or name}` | " in page
    assert "| `fanout_cutoff` | whole number | `12` | A group of n" in page


def test_the_reference_has_every_key_of_a_declaration(generated: dict[str, str]) -> None:
    page = generated["reference/declarations.md"]
    for name in references.PLACES:
        model = references.declaration(name)
        assert set(references.field_notes(model)) >= set(model.model_fields), name
        assert all(f"| `{f.alias or key}` | " in page for key, f in model.model_fields.items())


def unknown_keys(model: type[BaseModel], own: dict) -> Iterator[str]:
    """Keys of a fragment of settings that its model and the models within it do not have."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in own.items():
        if key not in fields:
            yield f"{model.__name__}: {key}"
            continue
        for inner, is_keyed, _ in list(references.section_models(fields[key].annotation))[:1]:
            entries = value.values() if is_keyed and isinstance(value, dict) else [value]
            for entry in entries:
                for part in entry if isinstance(entry, list) else [entry]:
                    if isinstance(part, dict) and inner is not CodeRange:
                        yield from unknown_keys(inner, part)


@pytest.mark.parametrize("page", ["declared_censuses", "exact_facts", "grid"])
def test_fragments_of_declarations_have_known_keys(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    fragments = re.findall(r"^ *```toml(?: ignore)?\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    parsed = [tomllib.loads(fragment).get("census", {}) for fragment in fragments]
    assert any(parsed)
    assert not [key for own in parsed for key in unknown_keys(CensusDeclaration, own)]


def test_the_reference_has_every_rule_and_command(generated: dict[str, str]) -> None:
    rules, commands = generated["reference/cef.md"], generated["reference/commands.md"]
    assert all(f"| `{rule.name}` | {rule.statement} |" in rules for rule in CENSUS_RULES)
    assert "| `QAGE` | number | 23–26 |  |" in rules and "| 3 | 301 |" in rules
    assert all(f"\n## spineflow {name}\n" in commands for name in ("run", "ledger", "design"))


def test_spines_and_schemas_are_listed(settings_page: str) -> None:
    for kind, geolevels in GEOLEVEL_ORDER.items():
        assert f"| `{kind}` |" in settings_page
        assert all(f"`{name}`" in settings_page for name in geolevels)
    schemas = [CENSUS.universes[name].full_schema for name in ("persons", "units")]
    for schema in schemas:
        for name in schema.attributes:
            assert re.search(rf"`{name}` \({len(schema.labels(name))}\b", settings_page)
        assert all(f"`{c.name}`" in settings_page for c in schema.coarsenings)


@pytest.mark.soak(4)
@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_figures_of_every_preset(preset: str, settings_page: str, tmp_path: Path) -> None:
    text = WHOLE_FILE.replace("pl94_2020_us", preset)
    if preset.startswith(("dhc_persons", "dhc_units")):
        text = text.replace("[input]\n", '[input]\nredistricting = "runs/redistricting"\n')
    settings = settings_of(tmp_path, text)
    reports = [cost_of(settings, universe).to_json() for universe in settings.run.universes]
    root = next(iter(settings.budget[settings.run.universes[0]].geolevels))
    rhos = [report["rho"] for report in reports]
    epsilons = [f"{report['epsilon']['tight']:.2f}" for report in reports]
    nothing = ["" for _ in range(2 - len(rhos))]
    row = " | ".join([f"| `{preset}`", root, *rhos, *nothing, *epsilons, *nothing, ""]).rstrip()
    assert row.replace("  ", " ") in settings_page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_in_the_pages_are_accepted(page: Path, tmp_path: Path) -> None:
    """A page on a product shows whole settings of that product, all others those of topdown; that
    on registration shows the texts of an office."""
    model = MODEL_OF_PAGE.get(page.stem)
    for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if page.stem == "registration":
            (tmp_path / "office.toml").write_text(block, encoding="utf-8")
            assert read_office(tmp_path / "office.toml").assessment
            continue
        if model is not None:
            (tmp_path / "settings.toml").write_text(block, encoding="utf-8")
            if "design" in tomllib.loads(block):
                model = MODEL_OF_DESIGNS.get(page.stem, model)
            load_settings(model, tmp_path / "settings.toml", presets=PRESETS)
            continue
        own = tomllib.loads(block)
        text = block if {"preset", "input"} & set(own) else WHOLE_FILE + block
        if "privacy" not in own and text is block:
            text = 'preset = "pl94_2020_us"\n' + text + '[privacy]\ndataset = "d"\n'
        settings_of(tmp_path, text)


def test_the_settings_of_the_country_are_short_and_accepted(tmp_path: Path) -> None:
    text = (DEMOS / "country.toml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    settings_of(tmp_path, text)


def test_the_map_holds_every_module() -> None:
    listed = set(re.findall(r"`([^`]+)`", "".join(references.module_lines())))
    for folder in references.FOLDERS:
        for module in (ROOT / folder).rglob("*.py"):
            place = f"{module.parent.relative_to(ROOT).as_posix()}/"
            assert place in listed and (module.stem == "__init__" or module.stem in listed), module


def test_every_module_is_summed_up_in_one_sentence() -> None:
    for line in references.module_lines():
        assert line.endswith(".") and ". " not in line.replace("P.L. ", ""), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_in_the_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        is_generated = target.split("docs/")[-1] in GENERATED
        assert is_generated or (page.parent / target).exists(), target
    sources = r"`((?:flows|tasks|geography|validation|tests)/[\w/]*(?:\.py|/))`"
    for path in re.findall(sources, text):
        assert (ROOT / path).exists(), path


def test_every_event_of_the_threat_model_is_tested() -> None:
    """Docstrings of tests have the words of the events that they are about."""
    page = (DOCS / "threat_model.md").read_text(encoding="utf-8")
    events = [row["event"] for row in rows(page) if "event" in row]
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    claims = " ".join(
        " ".join(claim.split())
        for source in sources
        for claim in re.findall(r'Threat model: ([^"]+)"""', source)
    )
    assert len(events) > 30
    assert not [event for event in events if event not in claims]


REFERENCES = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
SOURCES = sorted(
    path
    for folder in ("flows", "tasks", "geography", "validation", "docs", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".toml", ".md", ".j2") and path.name != "references.md"
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


REPOSITORY = Path(__file__).resolve().parents[1]
LEAST_REPLICATES = 10


def text(page: str) -> str:
    return (REPOSITORY / "benchmarks" / "results" / f"{page}.md").read_text(encoding="utf-8")


def rows(markdown: str) -> list[dict[str, str]]:
    """The rows of all tables in a text, by the headers of their columns."""
    found, headers = [], None
    for line in markdown.splitlines():
        if not line.startswith("|"):
            headers = None
            continue
        cells = [cell.strip() for cell in line.strip("|\n").split("|")]
        if headers is None:
            headers = cells
        elif not set(line) <= set("|-: "):
            found.append(dict(zip(headers, cells, strict=False)))
    return found


def printed(*command: str) -> list[dict[str, str]]:
    """The rows of the tables that a benchmark prints, as by `python -m` but in this process, which
    has imported what it needs."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(shown):
        patched.setattr(sys, "argv", list(command))
        patched.delitem(sys.modules, command[0], raising=False)
        patched.chdir(REPOSITORY)
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    return rows(shown.getvalue())


@pytest.mark.parametrize("page", ["group_sizes_figures", "trips_figures"])
def test_every_mean_is_of_ten_replicates_and_has_the_smallest_and_the_largest(page: str) -> None:
    measured = [row for row in rows(text(page)) if row.get("mechanism", "").startswith("`")]
    assert len(measured) > 50
    few = [row for row in measured if int(row["replicates"]) < LEAST_REPLICATES]
    assert few == []
    without = [row for row in measured if not any("–" in cell for cell in row.values())]
    assert without == []


@pytest.mark.slow
@pytest.mark.soak
def test_the_ablations_are_measured_by_their_command() -> None:
    small = ("--ablate", "--replicates", "2", "--persons", "500", "--times", "1")
    shown = [row["rho and passes"] for row in printed("benchmarks.error_by_rho", *small)]
    assert shown == [f"1 times, {name}" for name in ABLATIONS] * len(QUERIES)
