"""What the census tables (persons, units, geography) must satisfy, declared once."""

from __future__ import annotations

from collections.abc import Mapping

from spineflow.validation.rules import Evidence, Rule

GROUP_QUARTERS_CODES: Mapping[int, tuple[str, ...]] = {
    1: ("101", "102", "103", "104", "105", "106"),
    2: ("201", "202", "203"),
    3: ("301",),
    4: ("401", "402", "403", "404", "405"),
    5: ("501",),
    6: ("601", "602"),
    7: ("701", "702", "704", "706", "801", "802", "900", "901", "903", "904"),
}
"""Codes of QGQTYP by group-quarters type: correctional (1), juvenile (2), nursing (3), other
institutional (4), college (5), military (6), other noninstitutional (7)."""

NURSING_FACILITY = 3
"""Group-quarters type in which nobody is younger than `ADULT_AGE`."""

ADULT_AGE = 18
OLDEST_AGE = 115


def applicable_rules(evidence: Evidence) -> tuple[Rule, ...]:
    """The rules whose column is in the evidence; a schema may not need every persons column."""
    return tuple(rule for rule in RULES if rule.evidence in evidence.get(rule.suite, {}))


def _coded(table: str, column: str, low: int, high: int, meaning: str) -> Rule:
    return Rule(
        name=f"{column.lower()}_is_valid",
        suite=table,
        table=table,
        column=column,
        evidence=column,
        statement=f"{column} must be {meaning} in every row",
        remedy="correct the column or recode it to the CEF code list",
        allowed=tuple(str(level) for level in range(low, high + 1)),
    )


def _group_quarters_code(table: str) -> Rule:
    return Rule(
        name="qgqtyp_is_known",
        suite=table,
        table=table,
        column="QGQTYP",
        evidence="QGQTYP",
        statement="QGQTYP must be blank or a known group-quarters code",
        remedy="correct the column or recode it to the 2020 group-quarters codes",
        allowed=tuple(code for codes in GROUP_QUARTERS_CODES.values() for code in codes),
        may_be_blank=True,
    )


def _digits(column: str, width: int, meaning: str) -> Rule:
    digits = "1 digit" if width == 1 else f"{width} digits"
    return Rule(
        name=f"{column.lower()}_is_valid",
        suite="geography",
        table="geography",
        column=column,
        evidence=column,
        statement=f"{column} ({meaning}) must be {digits} in every row",
        remedy="fill the column, with leading zeros",
        pattern=f"[0-9]{{{width}}}",
    )


def _never(suite: str, table: str, column: str, evidence: str, statement: str, remedy: str) -> Rule:
    """A rule that the yes/no evidence column is False in every row."""
    return Rule(
        name=f"no_{evidence}",
        suite=suite,
        table=table,
        column=column,
        evidence=evidence,
        statement=statement,
        remedy=remedy,
        allowed=(False,),
    )


RULES: tuple[Rule, ...] = (
    _digits("TABBLKST", 2, "state"),
    _digits("TABBLKCOU", 3, "county"),
    _digits("TABTRACTCE", 6, "tract"),
    _digits("TABBLKGRPCE", 1, "block group"),
    _digits("TABBLK", 4, "block"),
    _digits("AIANNHCE", 4, "American Indian, Alaska Native and Native Hawaiian area"),
    _digits("COUSUBFP", 5, "county subdivision"),
    _digits("PLACEFP", 5, "place"),
    _never(
        "geography",
        "geography",
        "OIDTABBLK",
        "blank_oidtabblk",
        "OIDTABBLK must be filled in every row",
        "give every block its identifier",
    ),
    Rule(
        name="rtype_is_valid",
        suite="units",
        table="units",
        column="RTYPE",
        evidence="RTYPE",
        statement="RTYPE must be 2 (housing unit) or 4 (group quarters) in every row",
        remedy="correct the column",
        allowed=("2", "4"),
    ),
    _never(
        "units",
        "units",
        "MAFID",
        "blank_mafid",
        "MAFID must be filled in every row",
        "give every unit its identifier",
    ),
    _group_quarters_code("units"),
    _never(
        "units",
        "units",
        "VACS",
        "housing_unit_of_unknown_vacancy",
        "VACS must be a digit for every housing unit (RTYPE 2)",
        "write 0 for occupied units and the vacancy status for the others",
    ),
    _never(
        "units",
        "units",
        "QGQTYP",
        "housing_unit_with_group_quarters_code",
        "QGQTYP must be blank for every housing unit (RTYPE 2)",
        "blank the code, or correct RTYPE",
    ),
    _never(
        "units",
        "units",
        "QGQTYP",
        "facility_without_group_quarters_code",
        "QGQTYP must be filled for every group-quarters facility (RTYPE 4)",
        "give the facility its code, or correct RTYPE",
    ),
    _never(
        "persons",
        "persons",
        "MAFID",
        "blank_mafid",
        "MAFID must be filled in every row",
        "give every person the identifier of the unit",
    ),
    _coded("persons", "QAGE", 0, OLDEST_AGE, f"a whole number from 0 to {OLDEST_AGE}"),
    _coded("persons", "CENHISP", 1, 2, "1 (not Hispanic) or 2 (Hispanic)"),
    _coded("persons", "CENRACE", 1, 63, "a code from 01 to 63"),
    _coded("persons", "QSEX", 1, 2, "1 or 2"),
    _group_quarters_code("persons"),
    _never(
        "cross_table",
        "geography",
        "OIDTABBLK",
        "repeated_oidtabblk",
        "OIDTABBLK must be different in every row",
        "remove the duplicate blocks",
    ),
    _never(
        "cross_table",
        "geography",
        "TABBLK",
        "repeated_block",
        "every block (state, county, tract, block group, block) must occur once",
        "remove the duplicate blocks",
    ),
    _never(
        "cross_table",
        "units",
        "MAFID",
        "repeated_mafid",
        "MAFID must be different in every row",
        "remove the duplicate units",
    ),
    _never(
        "cross_table",
        "units",
        "OIDTB",
        "unit_in_unknown_block",
        "OIDTB of every unit must be an OIDTABBLK of the geography table",
        "add the blocks to the geography table, or correct the units",
    ),
    _never(
        "cross_table",
        "persons",
        "MAFID",
        "person_in_unknown_unit",
        "MAFID of every person must be a MAFID of the units table",
        "add the units, or correct the persons",
    ),
    _never(
        "cross_table",
        "units",
        "MAFID",
        "facility_without_person",
        "every group-quarters facility (RTYPE 4) must have a person",
        "remove the empty facilities, or add their persons",
    ),
    _never(
        "cross_table",
        "persons",
        "MAFID",
        "person_in_vacant_unit",
        "no person may have the MAFID of a vacant housing unit (RTYPE 2, VACS not 0)",
        "correct VACS of the units, or MAFID of the persons",
    ),
    _never(
        "cross_table",
        "persons",
        "QGQTYP",
        "person_of_other_group_quarters_code",
        "QGQTYP of every person must be that of the person's unit",
        "correct the persons or the units",
    ),
    _never(
        "cross_table",
        "persons",
        "QAGE",
        "minor_in_nursing_facility",
        f"nobody in a nursing facility (QGQTYP 301) may have QAGE below {ADULT_AGE}",
        "correct QAGE or QGQTYP",
    ),
)
"""All rules, in the order in which a failure is reported."""
