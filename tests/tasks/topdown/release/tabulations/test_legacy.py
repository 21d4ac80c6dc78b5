"""The P.L. 94-171 files against a published release, and as the R package PL94171 reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.release.tabulations.legacy import HEADER_FIELDS, segment_variables
from spineflow.tasks.topdown.release.tabulations.levels import SUMMARY_LEVELS

from tests.tabulated import write_legacy

SAMPLE = "pl94171_2018_prototype"
N_FIELDS = {"geo": 97, "00001": 149, "00002": 152, "00003": 15}

INTEGERS_OF_R = {"LOGRECNO", "POP100", "HU100"}
NUMBERS_OF_R = {"AREALAND", "AREAWATR"}


def lines_of(folder: Path) -> dict[str, list[list[str]]]:
    """Fields of the records of each file, by its part of the release."""
    found = {}
    for path in folder.glob("*.pl"):
        part = next(part for part in N_FIELDS if part in path.name)
        text = path.read_bytes().decode("latin-1")
        assert text.endswith("\n") and "\r" not in text
        found[part] = [line.split("|") for line in text[:-1].split("\n")]
    assert set(found) == set(N_FIELDS)
    return found


def header_of(folder: Path) -> pd.DataFrame:
    return pd.DataFrame(lines_of(folder)["geo"], columns=list(HEADER_FIELDS))


@pytest.fixture(scope="module")
def rhode_island(release_of, tmp_path_factory):
    """A generated county with the codes of the sample's county, and further columns."""
    inputs = tmp_path_factory.mktemp("inputs")
    generate_county(inputs, persons=2000, seed=4, state="44")
    geography = pd.read_csv(inputs / "grfc.txt", sep="|", dtype=str)
    geography["TABBLKCOU"] = "007"
    geography["CBSA"], geography["MEMI"], geography["CSA"] = "39300", "1", "148"
    geography["VTD"], geography["AREALAND"] = "442834", "1000"
    geography.to_csv(inputs / "grfc.txt", sep="|", index=False)
    exact = release_of(inputs, tmp_path_factory.mktemp("release"))
    directory = tmp_path_factory.mktemp("written")
    files = write_legacy(exact.tabulation, directory)
    assert [file.name for file in files] == [
        "rigeo2020.pl",
        "ri000012020.pl",
        "ri000022020.pl",
        "ri000032020.pl",
    ]
    return exact, directory / "pl94171"


@pytest.mark.slow
def test_every_record_has_the_fields_of_the_sample(rhode_island, shared: Path) -> None:
    for folder in (rhode_island[1], shared / "data" / SAMPLE):
        for part, records in lines_of(folder).items():
            assert {len(record) for record in records} == {N_FIELDS[part]}


def test_fields_are_filled_and_as_wide_as_in_the_sample(rhode_island, shared: Path) -> None:
    """Where a field is filled, the sample fills it too, at that level and with that width."""
    ours, sample = header_of(rhode_island[1]), header_of(shared / "data" / SAMPLE)
    of_any_width = {"LOGRECNO", "BASENAME", "NAME", "POP100", "HU100", *NUMBERS_OF_R}
    for level, rows in ours.groupby("SUMLEV"):
        published = sample[sample["SUMLEV"] == level]
        if published.empty:
            assert level in ("060", "160", "280")
            continue
        for field in HEADER_FIELDS:
            widths = set(rows[field].str.len())
            if field in of_any_width:
                assert 0 not in widths or field in NUMBERS_OF_R
            else:
                assert widths - {0} <= set(published[field].str.len()), (level, field)


def test_constants_and_codes_are_those_of_the_sample(rhode_island, shared: Path) -> None:
    ours, sample = header_of(rhode_island[1]), header_of(shared / "data" / SAMPLE)
    for level in ("040", "050", "140", "150", "750"):
        rows, published = ours[ours["SUMLEV"] == level], sample[sample["SUMLEV"] == level]
        for field in (
            *("FILEID", "STUSAB", "GEOVAR", "GEOCOMP", "CHARITER", "CIFSN", "REGION", "DIVISION"),
            *("STATE", "STATENS", "COUNTY", "SUBMCD", "CBSA", "CSA", "GCUNI", "PARTFLAG"),
        ):
            assert set(rows[field]) == set(published[field]), (level, field)
        if level != "050":
            assert set(rows["LSADC"]) == set(published["LSADC"])
            assert set(rows["FUNCSTAT"]) == set(published["FUNCSTAT"])
    block = sample[sample["SUMLEV"] == "750"].iloc[0]
    outside = ours[(ours["SUMLEV"] == "750") & (ours["AIANHH"] == "9999")].iloc[0]
    for field in HEADER_FIELDS[HEADER_FIELDS.index("AIANHH") : HEADER_FIELDS.index("ANRC")]:
        assert outside[field] == block[field]
    for level in ("140", "150", "750"):
        pattern = {
            "140": r"Census Tract [1-9]\d*(\.\d\d)?",
            "150": r"Block Group \d",
            "750": r"Block \d{4}",
        }[level]
        for frame in (ours, sample):
            names = frame.loc[frame["SUMLEV"] == level, "NAME"]
            assert names.str.fullmatch(pattern).all()


def test_geocodes_are_made_as_in_the_sample(rhode_island, shared: Path) -> None:
    for folder in (rhode_island[1], shared / "data" / SAMPLE):
        header = header_of(folder)
        for level, rows in header.groupby("SUMLEV"):
            geocode = rows[list(SUMMARY_LEVELS[level].parts)].agg("".join, axis=1)
            assert (rows["GEOCODE"] == geocode).all()
            assert (rows["GEOID"] == f"{level}0000US" + geocode).all()
            assert (rows["BLOCK"].str[:1] == rows["BLKGRP"]).all() or level != "750"


def test_areas_are_sums_and_metropolitan_areas_stand_within_counties(rhode_island) -> None:
    exact, folder = rhode_island
    header = header_of(folder)
    n_blocks = len(exact.geography)
    assert header.loc[0, "AREALAND"] == str(1000 * n_blocks)
    assert set(header.loc[header["SUMLEV"].isin(["040", "160", "280"]), "CBSA"]) == {""}
    assert set(header.loc[header["SUMLEV"].isin(["050", "060", "140", "750"]), "CBSA"]) == {"39300"}
    assert set(header.loc[header["SUMLEV"] != "750", "VTD"]) == {""}


def r_reads(folder: Path) -> dict[str, pd.DataFrame]:
    """What `PL94171::pl_read` does with a folder: types by column, the delimiter from line 1."""
    found = {}
    for path in sorted(folder.iterdir()):
        if not re.search(r"\.u?pl$", path.name, re.IGNORECASE):
            continue
        parts = [part for part in ("00001", "00002", "00003", "geo") if part in path.name]
        assert len(parts) == 1, path.name
        first = path.read_text().split("\n", 1)[0]
        assert re.search(r"\W", first).group() == "|"
        names = (
            HEADER_FIELDS
            if parts == ["geo"]
            else ("FILEID", "STUSAB", "CHARITER", "CIFSN", "LOGRECNO", *segment_variables(parts[0]))
        )
        frame = pd.read_csv(path, sep="|", header=None, names=list(names), dtype=str)
        counts = {name for name in names if re.fullmatch(r"[PH]\d{7}", name)}
        for name in (INTEGERS_OF_R | NUMBERS_OF_R | counts) & set(names):
            frame[name] = pd.to_numeric(frame[name])
        found[parts[0]] = frame
    return found


@pytest.mark.slow
def test_the_r_reader_parses_them_unchanged(rhode_island, shared: Path) -> None:
    for folder in (rhode_island[1], shared / "data" / SAMPLE):
        read = r_reads(folder)
        assert set(read) == {"00001", "00002", "00003", "geo"}
        whole = read["geo"]
        for part in ("00001", "00002", "00003"):
            whole = whole.merge(read[part].iloc[:, 4:], on="LOGRECNO")
        assert len(whole) == len(read["geo"])
        assert (whole["P0010001"] == whole["POP100"]).all()
        assert whole["P0030001"].le(whole["P0010001"]).all()
