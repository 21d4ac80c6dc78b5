"""Ways in which files of a run can be unusable."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.outcome import Outcome


def damages(path: Path, *, of_columns: int) -> Iterator[tuple[str, bytes | None]]:
    """Ways in which a file can be unusable, each in words and with its bytes; None for no file.

    Every column has so many of its five, beginning with another one than the column before.
    """
    whole = path.read_bytes()
    yield "missing", None
    yield "empty", b""
    yield "cut off", whole[: len(whole) // 2]
    yield "of other bytes", b"\xff\xfe\x00 1|2|3\n"
    if path.suffix == ".json":
        for text in ("null", "[]", "{}", '"text"', '{"levels": 3, "shards": [1]}'):
            yield f"JSON {text}", text.encode()
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        other = {
            "nulls": pa.nulls(len(table)),
            "lists": pa.array([["x"]] * len(table)),
            "texts": pa.array(["x"] * len(table)),
            "numbers": pa.array([0.5] * len(table)),
        }
        for i, name in enumerate(table.column_names):
            without = {f"without column {name}": table.remove_column(i)}
            changed = {
                f"{what} in column {name}": table.set_column(i, name, values)
                for what, values in other.items()
            }
            every = [*(without | changed).items()]
            for n in range(of_columns):
                what, damaged = every[(i + n) % len(every)]
                yield what, _parquet(damaged)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="session", params=[1, pytest.param(5, marks=pytest.mark.soak(4))])
def passes_when_damaged(request: pytest.FixtureRequest) -> Callable[..., list[str]]:
    """A function of a file and of a run's checks: the damages to that file with which they pass.

    Of every column there is one damage, and in a soak all five. The checks must not raise, and
    their words must not quote a folder. Columns that the checks have no use for are left alone:
    `unread`.
    """

    def passing(
        path: Path, outcomes: Callable[[], Iterable[Outcome]], unread: Collection[str] = ()
    ) -> list[str]:
        whole = path.read_bytes()
        unseen = []
        for what, content in list(damages(path, of_columns=request.param)):
            if what.split()[-1] in unread:
                continue
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            found = list(outcomes())
            assert not any(str(path.parent) in outcome.detail for outcome in found), what
            if all(outcome.passed for outcome in found):
                unseen.append(what)
        path.write_bytes(whole)
        assert all(outcome.passed for outcome in outcomes())
        return unseen

    return passing
