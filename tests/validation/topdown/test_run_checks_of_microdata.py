"""Microdata that are wrong in any way fail their check, and no other."""

from __future__ import annotations

import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.validation.conftest import where

pytestmark = pytest.mark.slow


def test_editing_a_release_without_changing_it_passes(run):
    run.edit_released("persons", lambda frame: None)
    run.edit_released("units", lambda frame: frame.iloc[::-1])
    assert run.failing() == set()


@pytest.mark.parametrize(
    ("universe", "change"),
    [
        ("persons", lambda frame: frame.iloc[1:]),
        ("persons", lambda frame: frame.iloc[:-1]),
        ("persons", lambda frame: pd.concat([frame, frame.iloc[-1:].assign(EPNUM=len(frame))])),
        ("persons", lambda frame: pd.concat([frame, frame.iloc[-1:].assign(TABBLK="7777")])),
        ("persons", lambda frame: pd.concat([frame, frame.iloc[-1:].assign(CENRACE="64")])),
        ("persons", lambda frame: pd.concat([frame, frame.iloc[-1:].assign(CENRACE="63")])),
        ("persons", lambda frame: pd.concat([frame, frame.iloc[-1:].assign(VOTING_AGE="0")])),
        ("persons", lambda frame: frame.assign(EPNUM=frame["EPNUM"] + 1)),
        ("persons", lambda frame: frame.assign(EPNUM=[0, 0, *frame["EPNUM"][2:]])),
        ("persons", where("RTYPE", lambda _: "3", RTYPE="5")),
        ("persons", where("CENHISP", lambda old: str(3 - int(old)), EPNUM=3)),
        ("persons", where("CENRACE", lambda _: "64", EPNUM=3)),
        ("persons", where("CENRACE", lambda _: "xx", EPNUM=3)),
        ("persons", where("GQTYPE_PL", lambda _: "2", EPNUM=3)),
        ("persons", where("TABBLK", lambda _: "7777", EPNUM=3)),
        ("persons", where("TABBLK", lambda _: "1003", TABBLK="1002")),
        ("persons", where("SCHEMA_TYPE_CODE", lambda _: "MUD", EPNUM=3)),
        ("persons", where("SCHEMA_BUILD_ID", lambda _: "1.1", EPNUM=3)),
        ("persons", lambda frame: frame.rename(columns={"TABBLK": "BLOCK"})),
        ("persons", lambda frame: frame.assign(FURTHER="1")),
        ("units", lambda frame: frame.drop(columns="HH_STATUS")),
        ("units", where("HH_STATUS", lambda _: "2", HH_STATUS="1")),
        ("units", where("HH_STATUS", lambda _: "0", HH_STATUS="1")),
        ("units", where("HH_STATUS", lambda _: "1", RTYPE="4")),
        ("units", lambda frame: frame.drop(index=frame.index[frame["RTYPE"] == "4"][0])),
        ("units", lambda frame: frame.drop(index=frame.index[frame["RTYPE"] == "2"][0])),
        ("units", where("TABBLK", lambda _: "1000", RTYPE="4")),
        ("units", lambda frame: pd.concat([frame, frame.iloc[-1:].assign(TABBLK="7777")])),
        ("units", lambda frame: pd.concat([frame, frame.iloc[:1].assign(TABBLK="7777")])),
        ("units", lambda frame: pd.concat([frame, frame.iloc[:1].assign(RTYPE="3")])),
        ("units", lambda frame: pd.concat([frame, frame[frame["RTYPE"] == "4"].iloc[:1]])),
        ("units", lambda frame: frame.iloc[:0]),
    ],
)
def test_microdata_must_tabulate_to_the_estimates(run, universe, change):
    run.edit_released(universe, change)
    assert run.failing() == {(universe, "microdata_tabulate_to_estimates")}


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_columns_of_the_parquet_file_alone_are_checked(run, universe):
    run.edit(
        run.released(universe, "parquet"),
        lambda frame: frame.rename(columns={"TABBLK": "BLOCK"}),
    )
    assert run.failing() == {(universe, "microdata_tabulate_to_estimates")}


@pytest.mark.parametrize("universe", ["persons", "units"])
@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-1],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: ["# NOT PRIVATE\n", *lines],
        lambda lines: lines[1:],
        lambda lines: [*lines[:-1], lines[-1][: len(lines[-1]) // 2]],
        lambda lines: [line.replace("|", ",") for line in lines],
        lambda lines: [],
    ],
    ids=["short", "long", "order", "stamp", "header", "cut", "delimiter", "empty"],
)
def test_text_must_agree_with_parquet(run, universe, change):
    path = run.released(universe, "csv")
    if universe == "units":
        # Equal units follow each other, so order shows only where two rows differ.
        lines = path.read_text().splitlines(keepends=True)
        first = next(i for i in range(1, len(lines)) if lines[i] != lines[i + 1])
        lines = [lines[0], *lines[first:], *lines[1:first]]
        frame = pq.read_table(run.released(universe, "parquet"))
        order = [*range(first - 1, len(frame)), *range(first - 1)]
        pq.write_table(frame.take(order), run.released(universe, "parquet"))
        path.write_text("".join(lines))
        assert run.failing() == set()
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    assert run.failing() == {(universe, "microdata_tabulate_to_estimates")}


@pytest.mark.parametrize("universe", ["persons", "units"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_stamp_must_be_on_both_files_exactly_if_due(run, exact_run, universe, suffix):
    private, stamped = (r.released(universe, suffix) for r in (run, exact_run))
    shutil.copy(stamped, private.with_suffix(".other"))
    shutil.copy(private, stamped)
    shutil.move(private.with_suffix(".other"), private)
    assert run.failing() == {(universe, "microdata_tabulate_to_estimates")}
    assert exact_run.failing() == {(universe, "microdata_tabulate_to_estimates")}
