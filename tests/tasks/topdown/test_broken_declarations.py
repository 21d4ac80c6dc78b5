"""Messages about broken declarations: sentences with the key, whatever is broken, and no more than
five problems; never what the validator calls the branches of its types.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.tasks.topdown.abroad import SETTINGS

INTERNALS = re.compile(
    r"function-|\[key\]|constrained-|lax-or|nullable|union|tagged|is-instance|tuple\[|dict\[|list\["
    r"|str\[|Annotated|Declaration|CodeRange|Validator|pydantic|Input should|Traceback|NoneType"
    r"|<class|object at 0x|_as_list|_as_tuple|model_type|type=|KeyError|input_value|\.str\b|\.int\b"
)
"""What no message may hold."""

WRONG: tuple[Any, ...] = (
    *(5, -1, 1.5, True, "", "x", "ü", "x" * 500, "\u202e", "0-14", [], [[]], {}, {"x": 1}),
    *(["x", 1], [{"from": 3}], [{"from": 5, "to": 1}], {"from": "a", "to": 2}, ["a", "a"]),
    *({"a": {"b": {"c": []}}}, [None], "total*total", "2021-02-30", "all but x"),
)
"""Values that stand in no place, or in few."""


def paths_of(tree: Any, above: tuple = ()) -> Iterator[tuple]:
    """Keys and positions that lead to every value below a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from paths_of(value, (*above, key))


PATHS = sorted(paths_of(tomllib.loads(SETTINGS)), key=repr)


@st.composite
def broken(draw) -> str:
    """The settings file with some values replaced, taken out, renamed or added."""
    tree = tomllib.loads(SETTINGS)
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=8)):
        node, last = tree, path[-1]
        try:
            for key in path[:-1]:
                node = node[key]
            node[last]
        except (KeyError, IndexError, TypeError):
            continue
        if not isinstance(node, dict | list):  # A change before has put a text here.
            continue
        how = draw(st.sampled_from(("replace", "remove", "rename", "add", "twice")))
        value = draw(st.sampled_from([one for one in WRONG if one != [None]]))
        if how == "replace":
            node[last] = value
        elif how == "remove":
            del node[last]
        elif isinstance(node, list):
            node.append(value)
        elif how == "rename":
            node[f"{last}x"] = node.pop(last)
        else:
            node[draw(st.sampled_from(("unknown", "Ünbekannt", "a b", "levels", "where")))] = value
    return tomli_w.dumps(tree)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("broken") / "settings.toml"


@pytest.mark.slow
@given(text=broken())
@settings(max_examples=20, deadline=None)
def test_messages_are_sentences_about_keys(file, text):
    file.write_text(text, encoding="utf-8")
    try:
        load_settings(TopdownSettings, file, presets=PRESETS)
    except InputRefused as refused:
        said = str(refused)
    else:
        return
    assert said.startswith("settings.toml")
    assert not INTERNALS.search(said), said
    problems = re.match(r"settings.toml: (\d+) problems:\n", said)
    if problems:
        assert int(problems[1]) >= 2
        assert said.count(";\n") == int(problems[1]) - 1
