"""What completes our commands in a shell."""

from __future__ import annotations

import argparse

import shtab

from .registry import MODULES

FOLDERS = ("RUN_DIR", "D", "FOLDER", "DIRECTORY", "DIR")
FILES = ("SETTINGS.toml", "FILE")
"""Arguments that a shell completes with names of folders and of files."""


def completion_script(commands: argparse.ArgumentParser, shell: str) -> str:
    """A script for a shell with which Tab completes commands, flows, options, files and folders."""
    (named,) = (found.choices for found in commands._actions if isinstance(found.choices, dict))
    for sub in named.values():
        for action in sub._actions:
            if action.metavar == "FLOW":
                # argparse itself would refuse a list of none.
                action.choices = tuple(MODULES) if action.choices is None else action.choices
            if action.metavar in FOLDERS:
                action.complete = shtab.DIRECTORY
            elif action.metavar in FILES:
                action.complete = shtab.FILE
    return shtab.complete(commands, shell)
