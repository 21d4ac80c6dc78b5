"""The arguments of the `spineflow` command, as `commands.toml` declares them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from ..tasks.runs.declared import read_declared
from ..tasks.runs.spelling import did_you_mean
from .logs import FORMATS
from .registry import DEMOS, MODULES, REPLICATED

DECLARED = Path(__file__).with_name("commands.toml")

SHELLS = ("bash", "zsh", "tcsh")

HOUSEHOLDS = "households"
"""The demonstration of products that count persons and households."""

CHOICES: Mapping[str, Collection[str]] = {
    "flows": tuple(MODULES),
    "demos": (*DEMOS, HOUSEHOLDS),
    "replicated": REPLICATED,
    "formats": FORMATS,
    "shells": SHELLS,
}
"""What an argument may be, by the name that its declaration has for it."""


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


TYPES: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "positive": _positive,
}


class _Parser(argparse.ArgumentParser):
    """Refuses a command that is none with what was meant: a flow is named after 'run'."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and end with exit code 2."""
        named = re.match(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if named is None:
            super().error(message)
        name = named[1]
        if name.replace("_", "-") in MODULES:
            hint = f"it is a flow, which 'spineflow run {name}' runs"
        else:
            hint = "see 'spineflow --help'" + did_you_mean(name, self.commands)
        self.exit(2, f"spineflow: There is no command {name!r}; {hint}.\n")

    commands: Collection[str] = ()


def parser(
    commands: Mapping[str, Callable[[argparse.Namespace], object]],
) -> argparse.ArgumentParser:
    """The command line's arguments; `commands` is what each command does, by name."""
    declared = read_declared(DECLARED)
    parser = _Parser(
        prog="spineflow",
        description=declared["description"],
        epilog=declared["epilog"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.commands = commands.keys()
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('spineflow')}")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    shared = declared["shared"]
    for name, command in declared["commands"].items():
        description = command.get("description", command["help"])
        sub = added.add_parser(name, help=command["help"], description=description)
        sub.set_defaults(command=commands[name])
        alternatives: dict[str, Any] = {}
        for argument, own in {"--debug": {}, **command["arguments"]}.items():
            described = shared.get(own.get("like", argument), {}) | own
            described.pop("like", None)
            group = described.pop("one_of", None)
            if group is not None and group not in alternatives:
                alternatives[group] = sub.add_mutually_exclusive_group()
            _add(alternatives.get(group, sub), argument, described)
    return parser


def _add(place: Any, argument: str, described: Mapping[str, Any]) -> None:
    """Add an argument to a command, or to a group of it, as `add_argument` takes it."""
    options = dict(described)
    if "choices" in described:
        named = described["choices"]
        options["choices"] = CHOICES[named] if isinstance(named, str) else named
    if "type" in described:
        options["type"] = TYPES[described["type"]]
    words = {
        "choices": ", ".join(options.get("choices", ())),
        "flows": ", ".join(MODULES),
        "demos": ", ".join(DEMOS),
    }
    options["help"] = described["help"].format(**words)
    place.add_argument(argument, **options)
