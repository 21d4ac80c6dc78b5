"""How many random faults of one line in the product the quick tests notice.

    .venv/bin/python -m benchmarks.mutants [--number 200] [--seed 34] [--only 3 17] [--commit main]

A clone of the repository gets one fault at a time: a comparison, a sum or a conjunction turned
round, a number off by one, a truth negated, a result that is None, a statement that is not there.
Asked are the quick tests that import the faulty module, and those of its folder; tests that do not
end within --seconds have noticed it. Prints a line for each fault, and how many were noticed. The
same seed chooses the same faults of the same sources: so the tests of two commits are compared.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = ("library", "flows", "tasks", "geography", "validation")
TURNED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
TURNED |= {ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}
TURNED |= {ast.Add: "-", ast.Sub: "+", ast.And: "or", ast.Or: "and"}
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


def pass_now(tests: tuple[str, ...], root: Path, seconds: int) -> bool:
    """Whether quick tests pass in time, or none is quick, with the sources as they are."""
    child = os.fork()
    if not child:
        signal.alarm(seconds)  # Which ends the process.
        os.chdir(root)
        sys.path[:0] = [str(root / ".links"), str(root)]
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        options = ["-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider"]
        code = import_module("pytest").main([*options, "-m", "not slow and not soak", *tests])
        os._exit(int(code not in (0, 5)))
    return os.waitpid(child, 0)[1] == 0


def main() -> None:
    """Print the verdicts; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", default="34")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of some")
    parser.add_argument("--commit", default="HEAD", help="whose sources and tests are taken")
    parser.add_argument("--seconds", type=int, default=900)
    asked = parser.parse_args()
    for name in LOADED:
        import_module(name)
    with tempfile.TemporaryDirectory(prefix="spineflow-mutants-") as folder:
        root = Path(folder) / "main"
        subprocess.run(["git", "clone", "-q", REPOSITORY, root], check=True)
        subprocess.run(["git", "checkout", "-q", asked.commit], cwd=root, check=True)
        (root.parent / "shared").symlink_to((REPOSITORY.parent / "shared").resolve())
        os.environ |= {"PYTHONPATH": str(root / ".links"), "PYTHONDONTWRITEBYTECODE": "1"}
        paths = (path for name in FOLDERS for path in sorted((root / name).rglob("*.py")))
        every = [fault for path in paths for fault in faults_of(path)]
        chosen = enumerate(random.Random(asked.seed).sample(every, asked.number))
        are_sound = cache(lambda tests: pass_now(tests, root, asked.seconds))
        verdicts = []
        for number, fault in (one for one in chosen if asked.only is None or one[0] in asked.only):
            path, tests, source = fault[0], tests_of(fault[0], root), fault[0].read_bytes()
            path.write_bytes(spoiled(source, fault))
            verdicts.append(bool(tests) and not pass_now(tests, root, asked.seconds))
            path.write_bytes(source)
            assert not verdicts[-1] or are_sound(tests), f"without a fault, too: {tests}"
            said = f"{'noticed' if verdicts[-1] else 'missed':7s} {path.relative_to(root)}"
            print(f"{number:4d} {said}:{fault[1]} -> {fault[4].strip() or 'no not'}", flush=True)
    print(f"{sum(verdicts)} of {len(verdicts)} noticed")


if __name__ == "__main__":
    main()
