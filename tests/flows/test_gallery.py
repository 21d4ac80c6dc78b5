"""The declarations of the gallery as they stand on its page: forecasts, and what `check` says.

That they run to a release is in `conformance`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.cli import main

from tests.flows.gallery import DECLARATIONS, GALLERY

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

PUBLIC = ["--set", "input.confidential=false"]


@pytest.fixture(params=list(zip(GALLERY, DECLARATIONS, strict=True)), ids=list(GALLERY))
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A declaration of the page beside tables that it fits."""
    name, text = request.param
    assert text.count("\n") < 100
    GALLERY[name](tmp_path)
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return file


MISTAKES = {
    "homes": [
        ("nobody = 0, ", "", "does not say how many people the level 'nobody' of 'residents' has"),
        (
            'called = { sex = "householder" }',
            "",
            "lacks 'sex'; name it in called",
        ),
        ('"4 or more" = [4, 12] }', '"4 or more" = [12, 4] }', "at least 12 and at most 4"),
    ],
    "schools": [
        ("at_most = 900", "at_most = 40", "must meet the bound stage of school per schools"),
        ("records_per_person = 2", "records_per_person = 1", "a person may have at most 1 records"),
        ('"grade * sex" = "1/3"', '"grade * age" = "1/3"', "'age' is no attribute of the schema"),
        ('["P"], lower', '["X"], lower', "must have a level of the attribute stage"),
    ],
    "register": [
        ("records_per_row = 12", "records_per_row = 2", "dwellings"),
        ('"67-79", "80-110"] }\n', '"67-79"] }\n', "leaves out the level '80-110'"),
    ],
    "households": [
        ('sign = "="', 'sign = "<="\nright_ = []', "unknown setting"),
        ('geolevels = ["country", "province"', 'geolevels = ["country", "provinz"', "provinz"),
        (
            "categories.locality",
            'columns = { provinz = "PROV" }\ncategories.locality',
            "columns has 'provinz', which is no geolevel below the root (did you mean 'province'?)",
        ),
        ('"grown * school" = "1/4"', '"grow * school" = "1/4"', "one (did you mean 'grown'?)"),
    ],
}


def test_check_names_what_is_wrong_with_a_declaration(settings: Path, capsys) -> None:
    """Each mistake of those that the page speaks of, one at a time."""
    text = settings.read_text(encoding="utf-8")
    (name,) = (name for name, own in zip(GALLERY, DECLARATIONS, strict=True) if own == text)
    for old, new, sentence in MISTAKES[name]:
        assert old in text
        settings.write_text(text.replace(old, new, 1), encoding="utf-8")
        capsys.readouterr()
        assert main(["check", "topdown", str(settings), *PUBLIC]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings", [("households", DECLARATIONS[1])], indirect=True, ids=["households"]
)
def test_relations_are_asked_where_every_record_is_counted(settings: Path, capsys) -> None:
    """A person of no level is in no count: the want of heads is none of the tables' mistakes."""
    text = settings.read_text(encoding="utf-8")
    relation = "must meet the relation every household has a head"
    heads = 'left = [{ where = { role = ["head"] } }]\nsign = "="'
    for old, new, told, is_related in (
        ('male = ["1"] } }\nage', 'male = ["9"] } }\nage', "a level of the attribute sex", False),
        (heads, heads.replace("head", "other"), relation, True),
    ):
        assert old in text
        settings.write_text(text.replace(old, new, 1), encoding="utf-8")
        assert main(["check", "topdown", str(settings), *PUBLIC]) == 2
        shown = capsys.readouterr()
        assert told in shown.err and (relation in shown.out + shown.err) == is_related


def notes_but_on_codes(out: str) -> list[str]:
    """The notes of a check but those on codes that nobody has in a small input."""
    notes = [line for line in out.splitlines() if line.startswith("note:")]
    return [note for note in notes if ": no record has " not in note]


def test_no_declaration_of_the_gallery_spends_in_vain(settings: Path, capsys) -> None:
    assert main(["check", "topdown", str(settings)]) == 0
    assert not notes_but_on_codes(capsys.readouterr().out)
