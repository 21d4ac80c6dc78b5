"""A process of its own judges inputs as whoever asks it would."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from spineflow.validation import judge

BEGUN = """
    import os, signal, sys
    from spineflow.flows.forking import forked, listening
    from spineflow.validation import judge

    def begin(import_all, answer):
        begun = []
        with listening() as (listener, address):
            kept = {listener.fileno()}
            fork = lambda serve: begun.append(forked(serve, kept=kept))
            judge.begin(listener, address, fork, import_all, answer)
        return begun[0]
"""


def printed(program: str, folder: Path) -> list[str]:
    """The lines that a program prints which has begun with `BEGUN`."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BEGUN) + textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert not done.stderr, done.stderr
    return done.stdout.split("\n")[:-1]


def state_of(pid: str) -> str:
    """What a process is at, in a letter; nothing of one that is gone."""
    status = Path(f"/proc/{pid}/stat")
    return status.read_text().rpartition(")")[2].split()[0] if status.exists() else ""


def test_nobody_is_asked_where_none_has_begun() -> None:
    assert judge.asked("anything") is None


def test_another_process_answers_several(tmp_path: Path) -> None:
    program = """
        import os
        from multiprocessing import get_context

        process = begin(lambda: None, lambda one, other: (one + other, os.getpid()))
        found = [judge.asked(1, 2), judge.asked("a", "b")]
        with get_context("fork").Pool(2) as workers:
            found += workers.starmap(judge.asked, [(number, number) for number in range(20)])
        assert {pid for _, pid in found} == {process.pid} != {os.getpid()}
        print(*(sum for sum, _ in found))
    """
    assert printed(program, tmp_path) == [
        "3 ab " + " ".join(str(2 * number) for number in range(20))
    ]


def test_who_gets_no_answer_is_told_so(tmp_path: Path) -> None:
    """The process cannot answer one question, and then it is killed."""
    program = """
        process = begin(lambda: None, lambda number: 1 / number)
        print(judge.asked(0), judge.asked(2))
        process.kill()
        process.wait()
        print(judge.asked(2))
    """
    assert printed(program, tmp_path) == ["None 0.5", "None"]


def test_it_ends_with_the_process_that_has_begun_it(tmp_path: Path) -> None:
    program = """
        print(begin(lambda: None, lambda: None).pid)
        sys.stdout.flush()
        os._exit(0)
    """
    (pid,) = printed(program, tmp_path)  # Which waits for all that could print.
    for _ in range(100):
        if state_of(pid) in ("", "Z"):  # Gone, or waiting for whoever is to wait for it.
            return
        time.sleep(0.1)
    raise AssertionError(state_of(pid))


def test_it_goes_when_nobody_asks_any_more(tmp_path: Path) -> None:
    """But not before it was asked, however long that takes."""
    program = """
        import time

        judge.SECONDS_BETWEEN_LOOKS = judge.SECONDS_UNASKED = 0.1
        process = begin(lambda: None, lambda number: number)
        time.sleep(0.5)
        print(judge.asked(1))
        process.wait(10)
        print(judge.asked(2))
    """
    assert printed(program, tmp_path) == ["1", "None"]


@pytest.mark.slow
def test_great_expectations_judges_there_as_here(tmp_path: Path) -> None:
    program = """
        from spineflow.validation.census.input_rules import RULES
        from spineflow.validation.expectations import (
            import_alone,
            judged,
            run_suites,
        )

        evidence = {}
        for rule in RULES:
            values = ["1", None] if rule.allowed != (False,) else [False]
            evidence.setdefault(rule.suite, {})[rule.evidence] = values
        begin(import_alone, judged)
        told = run_suites(RULES, evidence)
        assert "great_expectations" not in sys.modules
        assert told == judged(RULES, evidence)
        assert {one.passed for one in told} == {True, False}
        print(len(told) == len(RULES))
    """
    assert printed(program, tmp_path) == ["True"]
