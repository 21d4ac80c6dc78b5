"""Specification files: what is read, and the sentence for each way in which they are refused."""

from __future__ import annotations

import pytest
from spineflow.tasks.detailed_groups.workload.specification import (
    CODES_FILE,
    ETHNICITY_FILE,
    MAPPING_FILE,
    RACE_FILE,
    SpecificationError,
    parse_specification,
)

GOOD = {
    CODES_FILE: "RACE_ETH_CODE|RACE_ETH_NAME\n1000|One\n1001|Two\n2000|Three\n",
    RACE_FILE: "ITERATION_CODE|ITERATION_NAME|LEVEL|ALONE|DETAILED_ONLY|COARSE_ONLY\n"
    "0100|Major alone|0|True|Null|Null\n"
    "0101|One alone|1|True|False|False\n"
    "0102|One alone or in any combination|1|False|True|False\n",
    ETHNICITY_FILE: "ITERATION_CODE|ITERATION_NAME|LEVEL|DETAILED_ONLY|COARSE_ONLY\n"
    "0200|Three|2|False|True\n",
    MAPPING_FILE: "ITERATION_CODE|RACE_ETH_CODE\n0101|1000\n0101|1001\n0102|1000\n0200|2000\n",
}


def spoilt(name: str, old: str, new: str) -> dict[str, str]:
    assert old in GOOD[name]
    return GOOD | {name: GOOD[name].replace(old, new, 1)}


def test_line_ends_of_windows_and_a_byte_order_mark_are_no_matter() -> None:
    texts = {name: "\ufeff" + text.replace("\n", "\r\n") for name, text in GOOD.items()}
    assert parse_specification(texts).pairs == parse_specification(GOOD).pairs


REFUSED = {
    "column missing": (CODES_FILE, "RACE_ETH_CODE|RACE_ETH_NAME", "RACE_ETH_CODE", "first line"),
    "columns in another order": (
        MAPPING_FILE,
        "ITERATION_CODE|RACE",
        "RACE|ITERATION",
        "first line",
    ),
    "field missing": (MAPPING_FILE, "0102|1000", "0102", "has 1 fields"),
    "code out of form": (CODES_FILE, "1001|Two", "0001|Two", "RACE_ETH_CODE is '0001'"),
    "level out of form": (RACE_FILE, "alone|1|True", "alone|x|True", "LEVEL is 'x'"),
    "level not tabulated": (RACE_FILE, "alone|1|True", "alone|3|True", "has level 3"),
    "alone out of form": (RACE_FILE, "|1|True|False", "|1|Null|False", "ALONE is 'Null'"),
    "flags at level 0": (RACE_FILE, "Null|Null", "False|False", "has level 0 and must have Null"),
    "no flags at level 1": (RACE_FILE, "True|False|False", "True|Null|Null", "True or False"),
    "both flags": (RACE_FILE, "True|False\n", "True|True\n", "both DETAILED_ONLY and COARSE_ONLY"),
    "code twice": (CODES_FILE, "1001|Two", "1000|Two", "listed more than once"),
    "iteration twice": (RACE_FILE, "0102|", "0101|", "listed more than once"),
    "race and ethnicity": (ETHNICITY_FILE, "0200|", "0101|", "is also in"),
    "pair twice": (MAPPING_FILE, "0101|1001", "0101|1000", "listed more than once"),
    "unknown code": (MAPPING_FILE, "0101|1001", "0101|1999", "1999 is not in"),
    "unknown iteration": (MAPPING_FILE, "0102|1000", "0999|1000", "0999 is not in"),
    "no rows": (CODES_FILE, "1000|One\n1001|Two\n2000|Three\n", "", "no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_contradicts_itself_is_refused(case: str) -> None:
    name, old, new, expected = REFUSED[case]
    with pytest.raises(SpecificationError) as refused:
        parse_specification(spoilt(name, old, new))
    sentence = str(refused.value)
    assert expected in sentence
    assert name in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("flags", "is_refused"),
    [("False|False", True), ("True|False", True), ("False|True", True)],
)
def test_a_code_in_two_groups_of_a_kind_is_refused(flags: str, is_refused: bool) -> None:
    """`0101` is of both granularities, so that any other 'alone' group meets it in one."""
    texts = dict(GOOD)
    texts[RACE_FILE] += f"0103|Another alone|1|True|{flags}\n"
    texts[MAPPING_FILE] += "0103|1000\n"
    with pytest.raises(SpecificationError, match="code 1000 is mapped to both"):
        parse_specification(texts)


def test_a_code_in_groups_of_other_granularity_level_or_kind_is_not() -> None:
    texts = dict(GOOD)
    texts[RACE_FILE] += (
        "0103|Coarse in combination|1|False|False|True\n0104|Finer alone|2|True|False|False\n"
    )
    texts[MAPPING_FILE] += "0103|1000\n0104|1000\n"
    assert len(parse_specification(texts).pairs) == 6


def test_real_specification_is_accepted(shared) -> None:
    from spineflow.tasks.detailed_groups.workload.parameters import read_specification

    found = read_specification(str(shared / "data" / "safetab" / "spec_2020"))
    tabulated = [item for item in found.iterations.values() if item.level > 0]
    assert len(tabulated) == 2996
    assert sum(not item.detailed_only for item in tabulated) == 2198
