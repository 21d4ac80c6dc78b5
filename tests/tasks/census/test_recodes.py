"""Recodes agree with the rules, and with the schema."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.census.attribute_declarations import AttributeDeclaration
from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS, recode_of
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.census.recodes import FIRST_REFUSED, UNKNOWN, CodeSet, Recode, compiled_recode
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.tables.columns import CodedColumn
from spineflow.tasks.tables.layouts import LAYOUTS
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.validation.rules import CENSUS_RULES

CANDIDATES = [None, "", "x", "-1", "1.5", "²", *map(str, range(1200)), "9" * 30]


@pytest.mark.parametrize("attribute", CENSUS.universes["persons"].recodes)
def test_a_recode_is_defined_exactly_where_the_rule_holds(attribute):
    recode = recode_of("persons", attribute)
    [column] = recode.columns
    [rule] = [rule for rule in CENSUS_RULES if rule.suite == "persons" and rule.evidence == column]
    levels = {value: recode.level_of(value) for value in CANDIDATES}
    assert {v for v, level in levels.items() if level != UNKNOWN} == {
        v for v in CANDIDATES if rule.is_met_by(v)
    } | ({""} if rule.may_be_blank else set())
    reached = {level for level in levels.values() if level != UNKNOWN}
    assert reached == set(range(len(recode.levels)))


@pytest.mark.parametrize(
    ("qgqtyp", "level"),
    [(None, 0), ("101", 1), ("106", 1), ("203", 2), ("301", 3), ("405", 4), ("501", 5)]
    + [("602", 6), ("701", 7), ("703", UNKNOWN), ("904", 7), ("107", UNKNOWN), ("0", UNKNOWN)],
)
def test_group_quarters_types(qgqtyp, level):
    assert recode_of("persons", "hhgq").level_of(qgqtyp) == level


def test_levels_number_the_cells_of_the_persons_schema():
    raw = {"QGQTYP": "501", "QAGE": "020", "CENHISP": "2", "CENRACE": "07"}
    columns = {
        name: CodedColumn.from_arrow(pa.array([value]), LAYOUTS["persons"].field(name))
        for name, value in raw.items()
    }
    levels = {name: recode_of("persons", name).evaluate(columns, 0) for name in PERSONS.attributes}
    np.testing.assert_array_equal(PERSONS.cells(levels), [((5 * 2 + 1) * 2 + 1) * 63 + 6])


def test_what_is_refused_has_a_level_of_its_own_before_all_rules():
    declared = AttributeDeclaration.model_validate(
        {
            "rules": [{"level": "old", "where": {"age": ["9"]}}, {"level": "other", "where": {}}],
            "refused": [
                {"where": {"age": ["9"], "rel": ["1"]}, "statement": "s must", "remedy": "r"},
                {"where": {"rel": ["1", "2"]}, "statement": "t must", "remedy": "r"},
            ],
        }
    )
    columns = {
        "age": CodedColumn(np.array([0, 0, 1, 1, 0]), ("9", "3")),
        "rel": CodedColumn(np.array([0, 1, 0, 2, 2]), ("1", "2", None)),
    }
    recode = compiled_recode("kind", declared)
    assert recode.levels == ("old", "other")
    first = FIRST_REFUSED
    assert recode.evaluate(columns, 5).tolist() == [first, first - 1, first - 1, 1, 0]
    with pytest.raises(ValueError, match="has refused, which only rules have"):
        AttributeDeclaration.model_validate(
            {"column": "a", "numbers": [0, 1], "refused": declared.model_dump()["refused"]}
        )


CODE_SETS = st.builds(
    CodeSet,
    st.frozensets(st.sampled_from(["", "1", "3", "x"]), max_size=2),
    st.lists(st.sampled_from([(0, 2), (2, 4), (3, 3)]), max_size=1).map(tuple),
)
COLUMNS = ("a", "b", "c")
RULES_OF_SEVERAL = st.lists(
    st.tuples(
        st.integers(FIRST_REFUSED - 1, 3).filter(lambda level: level != UNKNOWN),
        st.dictionaries(st.sampled_from(COLUMNS), CODE_SETS),
    ),
    min_size=1,
    max_size=6,
)
VALUES = (None, "x", "0", "1", "2", "3", "4")


@given(
    RULES_OF_SEVERAL,
    st.lists(st.tuples(*[st.integers(0, len(VALUES) - 1)] * 3), max_size=12),
)
def test_levels_of_several_columns_are_those_of_the_first_rule_that_fits(rules, rows) -> None:
    recode = Recode("kind", ("w", "x", "y", "z"), tuple(rules))
    codes = np.array(rows, dtype=np.int32).reshape(-1, 3)
    columns = {name: CodedColumn(own, VALUES) for name, own in zip(COLUMNS, codes.T, strict=True)}
    expected = [
        next(
            (
                level
                for level, where in rules
                if all(of.holds(VALUES[row[COLUMNS.index(name)]]) for name, of in where.items())
            ),
            UNKNOWN,
        )
        for row in rows
    ]
    assert recode.evaluate(columns, len(rows)).tolist() == expected


@pytest.mark.parametrize("shape", ["levels", pytest.param("rules", marks=pytest.mark.soak)])
def test_more_levels_than_two_bytes_number_are_numbered(shape: str) -> None:
    codes = [str(number) for number in range(33_000)]
    if shape == "levels":
        declared = AttributeDeclaration(column="a", numbers=(0, len(codes) - 1))
    else:
        last = [{"level": code, "where": {"a": [code]}} for code in codes[-2:]]
        levels = [{"level": code, "where": {"b": [code]}} for code in codes[:-2]]
        declared = AttributeDeclaration.model_validate({"rules": [*levels, *last]})
    recode = compiled_recode("large", declared)
    columns = {name: CodedColumn(np.arange(2), tuple(codes[-2:])) for name in recode.columns}
    if "b" in columns:
        columns["b"] = CodedColumn(np.zeros(2, dtype=int), (None,))
    assert recode.evaluate(columns, 2).tolist() == [len(codes) - 2, len(codes) - 1]


@pytest.mark.parametrize(
    ("declared", "value", "level"),
    [
        (["01"], "01", 0),
        (["01"], "1", UNKNOWN),
        (["01"], "1.0", UNKNOWN),
        (["01"], "001", UNKNOWN),
        (["01"], "11", 1),
        (["01"], "x", 1),
        (["01"], None, 1),
        (["01", "1"], "1", 0),
        (["1"], "01", UNKNOWN),
    ],
)
def test_what_is_left_has_no_number_that_has_lost_its_zeros(declared, value, level) -> None:
    """`01` saved by a spreadsheet is `1`: all heads would be others, without a word."""
    rules = [{"level": "head", "where": {"role": declared}}, {"level": "other", "where": {}}]
    recode = compiled_recode("role", AttributeDeclaration.model_validate({"rules": rules}))
    columns = {"role": CodedColumn(np.array([0], dtype=np.int32), (value,))}
    assert recode.evaluate(columns, 1).tolist() == [level]


SETTINGS = """
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "d"
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")

    def of(preset):
        file = folder / f"{preset}.toml"
        file.write_text(f'preset = "{preset}"\n{SETTINGS}', encoding="utf-8")
        settings = load_settings(TopdownSettings, file, presets=PRESETS)
        schema = settings.schema_of("persons")
        people = np.random.default_rng(1).integers(0, 4, schema.n_cells)
        told = {}
        for table in settings.compiled_census.declared.tables:
            query = marginal_query(schema, table.query)
            mask = schema.cells_where(table.where) if table.where else np.ones(len(people), bool)
            told[table.name] = np.bincount(query.row_of_cell, people * mask, minlength=query.n_rows)
        races = [len(label.split(" + ")) for label in schema.labels("race")]
        return told, np.array(races)

    return of


@pytest.mark.parametrize("preset", ["block_tables_2010", "block_tables_2010_detailed"])
def test_tables_add_to_each_other(answers, preset):
    told, _ = answers(preset)
    persons = told["P1"].sum()
    for name in ("P3", "P4", "P5", "P12"):
        assert told[name].sum() == persons
    by_race = [told[f"P12{letter}"] for letter in "ABCDEFG"]
    assert (sum(by_race) == told["P12"]).all()
    assert [own.sum() for own in by_race] == told["P3"].tolist()
    assert told["P12H"].sum() == told["P4"][1]


def test_tables_of_63_races_add_to_those_of_seven(answers):
    told, races = answers("block_tables_2010_detailed")
    assert len(told["P8"]) == 63
    assert told["P8"][:6].tolist() == told["P3"][:6].tolist()
    assert told["P8"][6:].sum() == told["P3"][6]
    assert told["P9"].sum() == told["P4"][0]
    assert (told["P11"] <= np.minimum(told["P9"], told["P10"])).all()
    tallies = [own for name, own in told.items() if name.startswith("P6 ")]
    # Everybody is tallied under each of his races.
    assert sum(own.sum() for own in tallies) == (told["P8"] * races).sum()
    by_origin = [own for name, own in told.items() if name.startswith("P7 ")]
    assert [own.sum() for own in by_origin] == [own.sum() for own in tallies]
