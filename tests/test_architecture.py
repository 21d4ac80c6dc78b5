"""House rules that no linter knows: which way imports point, and who may use Prefect."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "tasks", "geography", "validation")
MAY_IMPORT = {
    "flows": {"flows", "tasks"},
    "tasks": {"tasks", "geography", "validation"},
    "tasks/workload": {"tasks.workload"},
    "geography": {"geography"},
    "validation": {"validation", "geography", "tasks.workload"},
}
LONGEST_MODULE = 600


def sources() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (REPOSITORY / name).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(REPOSITORY).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    place = path.relative_to(REPOSITORY).as_posix()
    layer = max((name for name in MAY_IMPORT if place.startswith(f"{name}/")), key=len)
    for module in imports(path):
        if module.partition(".")[0] in PACKAGES:
            allowed = any(is_within(module, package) for package in MAY_IMPORT[layer])
            assert allowed, f"{place} imports {module}"
        if is_within(module, "prefect") or is_within(module, "prefect_dask"):
            assert layer == "flows" or path.name == "steps.py", f"{place} imports Prefect"
        assert not is_within(module, "tests"), f"{place} imports tests"


def test_modules_have_a_purpose_and_stay_short() -> None:
    for path in sources():
        text = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
        assert text.count("\n") <= LONGEST_MODULE, f"{path} is too long"


def test_distribution_holds_every_package_and_no_tests() -> None:
    """Packages are found by name, so every folder of sources must be one."""
    found = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert found["packages"]["find"]["include"] == [f"{name}*" for name in PACKAGES]
    for name in PACKAGES:
        for path in (REPOSITORY / name).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), path


def test_noise_comes_from_no_ordinary_generator() -> None:
    """The seeded source for tests is the one exception."""
    forbidden = (
        "default_rng",
        "np.random.seed",
        "random.gauss",
        "standard_normal",
        "np.random.normal",
    )
    for path in (REPOSITORY / "tasks" / "measurement").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not any(word in text for word in forbidden), f"{path} draws from {forbidden}"


def test_release_stages_never_name_the_confidential_folder() -> None:
    """Estimation, postprocessing and release read measurements, invariants and geography only."""
    for stage in ("estimation", "postprocess", "release", "checks", "spine"):
        for path in (REPOSITORY / "tasks" / stage).rglob("*.py"):
            if "accuracy" in (path.stem, path.parent.name):
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            assert not used & {"run.confidential", "run.histogram"}, path
