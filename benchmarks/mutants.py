"""How many random faults of one line in the product the quick tests notice.

    cd CHECKOUT && .venv/bin/python -m benchmarks.mutants [--number 200] [--seed 34] [--only 3 17]

The sources below the present folder get one fault at a time: a comparison, a sum or a conjunction
turned round, a number off by one, a truth negated, a result that is None, a statement that is not
there. It wants a checkout in which nobody works, with an environment of its own. First every file
of quick tests runs once, in a process of its own that notes which lines of the product it comes to.
Asked of a fault are the files that came to its line, the shortest first; of a line that none was
seen to come to, since it is compiled or runs in another process, the files that import its module
and those of its folder. Tests that do not end within --seconds have noticed it. Prints a line for
each fault, and how many were noticed. The same seed chooses the same faults of the same sources: so
the tests of two commits are compared, each from its own checkout, by this file of the newer one.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import os
import pickle
import random
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

FOLDERS = ("library", "flows", "tasks", "geography", "validation")
TURNED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
TURNED |= {ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}
TURNED |= {ast.Add: "-", ast.Sub: "+", ast.And: "or", ast.Or: "and"}
QUICK = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow and not soak")
LOADED = ("pytest", "pandas", "pyarrow.parquet", "scipy.sparse", "scipy.optimize", "numba")
"""What tests need beside the product: it is imported once, before processes are forked."""

Fault = tuple[Path, int, int, int, str]
"""A module, a line of it, from which byte to which, and the text that is put there."""


def spoiled(source: bytes, fault: Fault) -> bytes:
    """A module's text with a fault."""
    _, number, start, end, text = fault
    lines = source.split(b"\n")
    line = lines[number - 1]
    lines[number - 1] = line[:start] + text.encode() + line[end:]
    return b"\n".join(lines)


def part_of(node: ast.AST) -> tuple[int, int, str] | None:
    """From where to where a node on one line can be spoiled, and what may stand there instead."""
    match node:
        case ast.Compare(ops=[turned], comparators=[right]):
            return node.left.end_col_offset, right.col_offset, f" {TURNED[type(turned)]} "
        case ast.BinOp(op=ast.Add() | ast.Sub() as turned):
            return node.left.end_col_offset, node.right.col_offset, f" {TURNED[type(turned)]} "
        case ast.BoolOp(op=turned, values=[left, right, *_]):
            return left.end_col_offset, right.col_offset, f" {TURNED[type(turned)]} "
        case ast.UnaryOp(op=ast.Not()):
            return node.col_offset, node.operand.col_offset, ""
        case ast.Constant(value=bool() | int() as value):
            text = str(not value if isinstance(value, bool) else value + 1)
        case ast.Return(value=ast.AST()):
            text = "return None"
        case ast.Assign() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            text = "pass"
        case _:
            return None
    return node.col_offset, node.end_col_offset, text


def faults_of(path: Path) -> Iterator[Fault]:
    """All faults that the functions of a module can have; what stands outside of them is data."""
    source = path.read_bytes()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    inside = {node: None for own in functions for item in own.body for node in ast.walk(item)}
    for node in (node for node in inside if hasattr(node, "lineno")):
        part = part_of(node) if node.lineno == node.end_lineno else None
        if part is not None:
            between = source.split(b"\n")[node.lineno - 1][part[0] : part[1]]
            if not set(b"()[]") & set(between) or part[2] in ("return None", "pass"):
                yield path, node.lineno, *part


@cache
def imported_by(path: Path) -> set[str]:
    """Names of the modules, and of all from modules, that a file of tests imports."""
    found = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.ImportFrom)]
    of_modules = {f"{node.module}.{alias.name}" for node in found for alias in node.names}
    return of_modules | {str(node.module) for node in found}


def tests_of(module: Path, root: Path) -> tuple[str, ...]:
    """Files of tests that import a module, first, and those of its folder."""
    place = module.relative_to(root)
    name = ".".join(("spineflow", *place.with_suffix("").parts)).replace(".library", "", 1)
    every = sorted((root / "tests").rglob("test_*.py"))
    beside = root / "tests" / place.parent
    near = [path for path in every if name in imported_by(path) or path.parent == beside]
    return tuple(str(path) for path in sorted(near, key=lambda path: name not in imported_by(path)))


class Ran(NamedTuple):
    """What a process of tests did: the tests that failed, seconds, and the wanted lines."""

    failed: list[str]
    seconds: float
    lines: set[tuple[str, int]]


class Marks(ast.NodeTransformer):
    """Statements before those of functions in which wanted lines are, which note that they are come
    to; kernels, which are compiled, get none."""

    def __init__(self, wanted: set[int]) -> None:
        self._wanted = wanted

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function with such statements, unless it is a kernel."""
        if any("njit" in ast.unparse(decorator) for decorator in node.decorator_list):
            return node
        for inner in ast.walk(node):
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(inner, field, None)
                if isinstance(statements, list):
                    setattr(inner, field, [one for own in statements for one in self._marked(own)])
        return node

    def _marked(self, own: ast.stmt) -> Iterator[ast.stmt]:
        body = getattr(own, "body", None)
        end = body[0].lineno - 1 if body else own.end_lineno or own.lineno
        for line in sorted(self._wanted.intersection(range(own.lineno, max(end, own.lineno) + 1))):
            (mark,) = ast.parse(f"__spineflow_seen__.add((__file__, {line}))").body
            yield ast.copy_location(mark, own)
        yield own


def mark_lines(wanted: Mapping[str, set[int]]) -> set[tuple[str, int]]:
    """Have the sources that this process imports from now on note which of the wanted lines, by
    file, it comes to; returns what they note."""
    seen: set[tuple[str, int]] = set()
    unmarked = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        path = str(loader.path)
        if path not in wanted:
            return unmarked(loader, fullname)
        tree = Marks(wanted[path]).visit(ast.parse(Path(path).read_bytes()))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    vars(builtins)["__spineflow_seen__"] = seen
    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    return seen


class Failures:
    """A plugin of pytest that keeps the names of the tests that fail."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest after each phase of each test."""
        if report.failed:
            self.failed.append(report.nodeid)


def run_tests(
    tests: list[str],
    *options: str,
    seconds: int,
    wanted: Mapping[str, set[int]] | None = None,
    new_kernels: bool = False,
) -> Ran | None:
    """Run quick tests in a process of their own, and say what it did, or None if it ends too late.

    `new_kernels` has it compile for itself: Numba does not notice that a function that it has
    inlined elsewhere is another one.
    """
    with tempfile.TemporaryDirectory(prefix="spineflow-mutants-") as folder:
        said = Path(folder) / "ran"
        if not (child := os.fork()):
            signal.alarm(seconds)  # Which ends the process.
            os.setsid()
            for number in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            if new_kernels:
                os.environ["NUMBA_CACHE_DIR"] = folder
                import_module("numba.core.config").reload_config()  # type: ignore[attr-defined]
            seen, failures, start = mark_lines(wanted or {}), Failures(), time.monotonic()
            code = import_module("pytest").main([*QUICK, *options, *tests], plugins=[failures])
            if code not in (0, 1, 5):  # No test could be asked.
                failures.failed.append(f"exit {int(code)}")
            said.write_bytes(pickle.dumps((failures.failed, time.monotonic() - start, seen)))
            os._exit(0)
        ended = os.waitpid(child, 0)[1] == 0
        subprocess.run(["pkill", "-KILL", "-s", str(child)], check=False)  # Servers left behind.
        return Ran(*pickle.loads(said.read_bytes())) if ended else None


def main() -> None:
    """Print the verdicts; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", default="34")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of some")
    parser.add_argument("--seconds", type=int, default=900)
    asked = parser.parse_args()
    root = Path.cwd()
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *FOLDERS], cwd=root).returncode:
        parser.error(f"{root}: sources with changes that are not committed; take another checkout")
    for name in LOADED:
        import_module(name)
    sources = [path for name in FOLDERS for path in sorted((root / name).rglob("*.py"))]
    every = [fault for path in sources for fault in faults_of(path)]
    chosen = list(enumerate(random.Random(asked.seed).sample(every, asked.number)))
    chosen = [one for one in chosen if asked.only is None or one[0] in asked.only]
    wanted: dict[str, set[int]] = defaultdict(set)
    for _, (path, line, *_) in chosen:
        wanted[str(path)].add(line)

    came_to: dict[tuple[str, int], list[str]] = defaultdict(list)
    cost: dict[str, float] = {}
    unsound: list[str] = []
    for file in map(str, sorted((root / "tests").rglob("test_*.py"))):
        ran = run_tests([file], seconds=asked.seconds, wanted=wanted)
        if ran is None:
            print(f"left out, more than {asked.seconds} s: {file}", flush=True)
            continue
        cost[file] = ran.seconds
        unsound += ran.failed
        for place in ran.lines:
            came_to[place].append(file)
    print(f"{len(cost)} files of tests, {sum(cost.values()):.0f} s; fail: {unsound}", flush=True)

    verdicts = []
    for number, fault in chosen:
        path, line = fault[:2]
        tests = came_to.get((str(path), line), [])
        asked_of = "ran it" if tests else "import it"
        tests = [file for file in tests or tests_of(path, root) if file in cost]
        tests.sort(key=cost.__getitem__)
        source, stat = path.read_bytes(), path.stat()
        path.write_bytes(spoiled(source, fault))
        try:
            left_out = [f"--deselect={name}" for name in unsound]
            ran = tests and run_tests(
                tests, "-x", *left_out, seconds=asked.seconds, new_kernels=b"njit" in source
            )
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        verdicts.append(bool(tests) and (ran is None or bool(ran.failed)))
        said = f"{'noticed' if verdicts[-1] else 'missed':7s} {path.relative_to(root)}:{line}"
        print(f"{number:4d} {said} -> {fault[4].strip() or 'no not'}", end="", flush=True)
        print(f" ({len(tests)} that {asked_of})", flush=True)
    print(f"{sum(verdicts)} of {len(verdicts)} noticed")


if __name__ == "__main__":
    main()
