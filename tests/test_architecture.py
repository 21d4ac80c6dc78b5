"""House rules that no linter knows: which way imports point, and who may use Prefect."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "tasks", "geography", "validation")
LIBRARY = REPOSITORY / "library"
"""What `spineflow` itself is: the public interface."""

PRODUCTS = (
    "topdown",
    "detailed_groups",
    "group_sizes",
    "trips",
    "supplemental_dhc",
    "evidence",
    "population",
)
ROOMS = (
    "noise",
    "pages",
    "runs",
    "tables",
    "ledger",
    "answers",
    "solvers",
    "census",
    "products",
    "study",
    "dissemination",
)
"""The rooms of `tasks` that products share; each imports only from those before it."""

STAGES = (
    {"settings", "paths", "workload", "tree", "plan"},
    {"ingest"},
    {"spine"},
    {"measurement", "charge"},
    {"published"},
    {"methods"},
    {"attacks"},
    {"estimation", "postprocess"},
    {"intervals", "release"},
    {"checks", "accuracy"},
    {"design", "trials"},
    {"product", "steps"},
)
"""The folders and modules of a product; each imports from its own set and those before it."""

LONGEST_MODULE = 600


def sources() -> list[Path]:
    folders = [LIBRARY, *(REPOSITORY / name for name in PACKAGES)]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Facts:
    """What the rules ask of a module. Trees of all of them would stay in memory, and with them the
    garbage collector's work."""

    has_purpose: bool
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    names: frozenset[str]
    attributes: frozenset[str]
    keywords: frozenset[str | None]
    types_asked: frozenset[str]
    """Names of types that `isinstance` or `case` asks of something."""
    told_apart: frozenset[str]
    """Attributes that are compared with a word."""


@cache
def facts_of(path: Path) -> Facts:
    """A module, parsed and gone through once."""
    tree = parsed(path)
    nodes = list(ast.walk(tree))
    calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    asked = [call.args[-1] for call in calls if call.func.id in ("isinstance", "issubclass")]
    asked += [node.cls for node in nodes if isinstance(node, ast.MatchClass)]
    compared = [
        part
        for node in nodes
        if isinstance(node, ast.Compare)
        for parts in [(node.left, *node.comparators)]
        if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)
        for part in parts
    ]
    return Facts(
        bool(ast.get_docstring(tree)),
        tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)),
        frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
        frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute)),
        frozenset(node.arg for node in nodes if isinstance(node, ast.keyword)),
        frozenset(n.id for kind in asked for n in ast.walk(kind) if isinstance(n, ast.Name)),
        frozenset(part.attr for part in compared if isinstance(part, ast.Attribute)),
    )


def package_of(path: Path) -> list[str]:
    """Parts of the name of the package in which a module lies."""
    folder = path.parent.relative_to(REPOSITORY).parts
    if folder[0] not in (*PACKAGES, "library"):
        return list(folder)
    return ["spineflow", *(() if folder == ("library",) else folder)]


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute names of the modules that a module imports."""
    found: list[str] = []
    for node in facts_of(path).imports:
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        else:
            found.append(absolute(node, path))
    return tuple(found)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def may_import(place: str) -> set[str]:
    """What the module at a path may import of the project's own packages."""
    package, name = place.split("/")[:2]
    below = {"geography", "validation"}
    if package == "library":
        return {"flows", "tasks", *below, *(path.stem for path in LIBRARY.glob("*.py"))}
    if package == "flows":
        return {"flows", "tasks", *below}
    if package == "tasks":
        shared = ROOMS[: ROOMS.index(name) + 1] if name in ROOMS else (*ROOMS, name)
        return {f"tasks.{room}" for room in shared} | below
    return {"validation": below, "geography": {"geography"}}[package]


def misplaced(path: Path) -> Iterator[str]:
    """What a module imports that it may not."""
    place = path.relative_to(REPOSITORY).as_posix()
    for module in imports(path):
        within = module.removeprefix("spineflow.")
        if module.partition(".")[0] in (*PACKAGES, "tests", "benchmarks", "library"):
            yield f"{place} imports {module} without spineflow"
        if is_within(module, "spineflow") and not any(
            is_within(within, package) for package in may_import(place)
        ):
            yield f"{place} imports {module}"
        if is_within(module, "prefect") or is_within(module, "prefect_dask"):
            if not place.startswith("flows/") and path.name != "steps.py":
                yield f"{place} imports Prefect"


def test_imports_point_one_way() -> None:
    paths = sources()
    assert len(paths) > 300
    assert not [fault for path in paths for fault in misplaced(path)]


def test_imports_within_the_package_are_relative() -> None:
    """Whoever reads a bare clone, a person or a tool, can then follow them."""
    for path in (path for path in sources() if path.parent != LIBRARY):
        for node in facts_of(path).imports:
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert not is_within(node.module or "", "spineflow"), f"{path}: {node.module}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not for their types either: one of them could not be read, or moved, without the others."""
    modules = {module_of(path): path for path in sources()}
    imported = {
        module: {
            name if name in modules else name.rpartition(".")[0]
            for name in names_imported(path)
            if name in modules or name.rpartition(".")[0] in modules
        }
        - {module}
        for module, path in modules.items()
    }
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def module_of(path: Path) -> str:
    """Name of a module; a package's is that of its folder."""
    parts = (*package_of(path), *((path.stem,) if path.stem != "__init__" else ()))
    return ".".join(parts)


@cache
def names_imported(path: Path) -> frozenset[str]:
    """Absolute names of all that a module imports: modules, and names of modules."""
    names: set[str] = set()
    for node in facts_of(path).imports:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            base = absolute(node, path)
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(names)


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module that `from ... import` names, wherever it stands."""
    package = package_of(path)
    assert node.level <= len(package), f"{path}: import from beyond the package"
    above = package[: len(package) + 1 - node.level] if node.level else []
    return ".".join([*above, *filter(None, [node.module])])


@pytest.mark.parametrize("folder", (*PACKAGES, "library"))
def test_no_file_is_imported_under_two_names(folder: str) -> None:
    """A second copy of a module has other classes: errors of one pass what catches the other's."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {folder}"], cwd=REPOSITORY, capture_output=True, text=True
    )
    name = "spineflow" if folder == "library" else f"spineflow.{folder}"
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: import {name}; {folder} is not its name"


def test_the_links_for_tools_are_the_package() -> None:
    """A new module in `library/` needs one: `ln -s ../../library/NAME.py .links/spineflow/`."""
    links = {path.name: path.resolve() for path in (REPOSITORY / ".links" / "spineflow").iterdir()}
    files = [*LIBRARY.glob("*.py"), LIBRARY / "py.typed", *(REPOSITORY / name for name in PACKAGES)]
    assert links == {path.name: path for path in files}


@pytest.mark.soak(6)
@pytest.mark.slow
def test_tools_resolve_every_import_in_a_bare_clone(tmp_path: Path) -> None:
    """By the settings of the project alone: tools that only read follow no installation."""
    ignored = shutil.ignore_patterns(".*", "build", "__pycache__", "*.egg-info")
    clone = tmp_path / "clone"
    shutil.copytree(REPOSITORY, clone, ignore=ignored)
    shutil.copytree(REPOSITORY / ".links", clone / ".links", symlinks=True)
    lines = [f"import {name}\n" for name in (*imported(), "spineflow.missing")]
    (clone / "every_import.py").write_text("".join(lines))
    command = (sys.executable, "-m", "mypy", "--follow-imports=skip", "every_import.py")
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    unresolved = re.findall(r'module named "(.+)"', done.stdout)
    assert unresolved == ["spineflow.missing"], done.stdout + done.stderr
    tools = tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert tools["pyright"]["extraPaths"] == [tools["mypy"]["mypy_path"]]


def imported() -> list[str]:
    """Names of the modules that sources, tests, benchmarks and scripts of the documentation import,
    but for packages that only benchmarks need.
    """
    folders = (REPOSITORY / name for name in ("tests", "benchmarks", "docs"))
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    names = {name for path in (*sources(), *paths) for name in imports(path)}
    return sorted(name for name in names if is_project(name) or find_spec(name.partition(".")[0]))


def is_project(module: str) -> bool:
    return any(is_within(module, name) for name in ("spineflow", "tests", "benchmarks"))


def test_the_library_loads_no_flows_until_they_are_needed() -> None:
    """Flows load Prefect, which takes seconds: only functions import them."""
    for path in LIBRARY.glob("*.py"):
        names = [node.module for node in parsed(path).body if isinstance(node, ast.ImportFrom)]
        assert not any(is_within(name, "spineflow.flows") for name in names), path


def test_tasks_hold_products_and_the_rooms_they_share() -> None:
    found = {path.name for path in (REPOSITORY / "tasks").iterdir() if path.is_dir()}
    assert found - {"__pycache__"} == {*PRODUCTS, *ROOMS}


def stage_of(module: str) -> int:
    """Place in `STAGES` of what is in `tasks.<product>.<stage>`."""
    name = module.split(".")[2]
    return next(place for place, names in enumerate(STAGES) if name in names)


@pytest.mark.parametrize("product", PRODUCTS[:5])
def test_inside_a_product_imports_follow_its_stages(product: str) -> None:
    folder = REPOSITORY / "tasks" / product
    for path in sorted(folder.rglob("*.py")):
        if path == folder / "__init__.py":
            continue
        place = path.relative_to(REPOSITORY).with_suffix("").as_posix().replace("/", ".")
        for module in (name.removeprefix("spineflow.") for name in imports(path)):
            assert module != f"tasks.{product}", f"{place} imports the whole product"
            if is_within(module, f"tasks.{product}"):
                assert stage_of(module) <= stage_of(place), f"{place} imports {module}"


def test_modules_have_a_purpose_and_stay_short() -> None:
    for path in sources():
        text = path.read_text(encoding="utf-8")
        assert facts_of(path).has_purpose, f"{path} has no docstring"
        assert text.count("\n") <= LONGEST_MODULE, f"{path} is too long"


def test_every_folder_of_sources_is_a_package() -> None:
    """Packages are found by their `__init__.py`."""
    for name in PACKAGES:
        for path in (REPOSITORY / name).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), path


def of_stage(stage: str) -> list[Path]:
    """The modules of a stage in all products: those of its folder, or the one of its name."""
    tasks = REPOSITORY / "tasks"
    return [*tasks.glob(f"*/{stage}/**/*.py"), *tasks.glob(f"*/{stage}.py")]


def test_noise_comes_from_no_ordinary_generator() -> None:
    """The seeded source for tests is the one exception."""
    forbidden = (
        "default_rng",
        "np.random.seed",
        "random.gauss",
        "standard_normal",
        "np.random.normal",
    )
    for path in (*of_stage("measurement"), *(REPOSITORY / "tasks" / "noise").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not any(word in text for word in forbidden), f"{path} draws from {forbidden}"


def test_noise_is_drawn_through_charges_alone() -> None:
    """Whoever else could call a sampler could draw what no ledger knows of."""
    allowed = ("tasks/noise/", "tasks/ledger/charging.py")
    for path in sources():
        place = path.relative_to(REPOSITORY).as_posix()
        if not place.startswith(allowed):
            names = facts_of(path).names
            drawn = names & {"draw_noise", "discrete_gaussian", "discrete_laplace"}
            assert not drawn, f"{place} draws noise by itself"
            assert "SystemRandom" not in names, f"{place} takes the system's randomness by itself"


UNSAFE = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
"""Modules whose readers run code that a file holds."""


def test_no_code_is_read_from_files() -> None:
    """No source reads pickles, or arrays that may hold them.

    Threat model: code in a run directory from elsewhere.
    """
    for path in sources():
        facts = facts_of(path)
        for node in facts.imports:
            names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            assert not {name.partition(".")[0] for name in names} & UNSAFE, path
        assert "allow_pickle" not in facts.keywords, path
        assert not facts.names & {"eval", "exec"}, path
        is_yaml = any("yaml" in {alias.name for alias in node.names} for node in facts.imports)
        assert not is_yaml or not {"load", "load_all", "unsafe_load"} & facts.attributes, path


def test_release_stages_never_name_the_confidential_folder() -> None:
    """Estimation, postprocessing and release read measurements, invariants and geography only."""
    for stage in ("estimation", "postprocess", "release", "checks", "spine"):
        for path in of_stage(stage):
            if "accuracy" in (path.stem, path.parent.name):
                continue
            nodes = ast.walk(parsed(path))
            used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
            assert not used & {"run.confidential", "run.histogram"}, path


KNOWS_2020 = (
    "flows/settings/",
    "tasks/census/presets/",
    # The Census Edited File: its columns, and the rules on them.
    "tasks/tables/layouts.py",
    "tasks/tables/presets/cef_layout.toml",
    "validation/declared_rules/census.toml",
    "validation/declared_rules/detailed_groups.toml",
    # The P.L. 94-171 format that a release is read from as fictional input.
    "tasks/topdown/release/tabulations/published.py",
    # The layout of the noisy measurements that the Census Bureau publishes.
    "tasks/topdown/published/layout.py",
    # SafeTab-P reads files of its own, and its regions are those of the United States.
    "tasks/detailed_groups/",
    "validation/detailed_groups/",
)
"""Where names of the 2020 Census may stand; everywhere else they come from declarations."""


def test_no_other_code_knows_the_names_of_one_census() -> None:
    names = re.compile("cenrace|hhgq|votingage|tabblk|aiannh", re.IGNORECASE)
    found, needed = [], set()
    for package in (*PACKAGES, "library"):
        for path in sorted((REPOSITORY / package).rglob("*")):
            if path.suffix not in (".py", ".toml") or "__pycache__" in path.parts:
                continue
            place = path.relative_to(REPOSITORY).as_posix()
            if names.search(path.read_text(encoding="utf-8")):
                needed |= {part for part in KNOWS_2020 if place.startswith(part)}
                found += [place] if not place.startswith(KNOWS_2020) else []
    assert not found, "declare these names, or read them from a declaration"
    assert needed == set(KNOWS_2020), "an exception that nothing needs"


def test_no_code_asks_whether_a_census_is_declared() -> None:
    """Every census is. What differs is declared: rules of the areas, levels, layouts, words.

    Which layout may declare what is asked where declarations are read, and nowhere else; what the
    rules of a geography settle is asked as `census.follows_block_rules`.
    """
    readings = {"CefTables", "CensusTables", "CensusInput"}
    for path in sources():
        facts = facts_of(path)
        assert not facts.attributes & {"is_declared", "is_preset", "has_blocks"}, path
        assert not facts.types_asked & readings, path
        if path.relative_to(REPOSITORY).as_posix() != "tasks/census/declarations.py":
            assert not facts.told_apart & {"layout", "rules"}, path
        assert "CEF_2020" not in path.read_text() or path.name == "sections.py", path
