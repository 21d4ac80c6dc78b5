"""What is wrong with a specification or a configuration, as one public sentence."""

from __future__ import annotations


class SpecificationError(ValueError):
    """The specification files or `config.json` contradict themselves; they hold no records."""
