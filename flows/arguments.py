"""Arguments that several commands of `spineflow` have, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from .registry import MODULES, REPLICATED

if TYPE_CHECKING:
    AnyFlow: TypeAlias = str
    AnyDemo: TypeAlias = str
    AnyReplicated: TypeAlias = str
else:
    AnyFlow = Literal[tuple(MODULES)]
    AnyDemo = Literal[(*MODULES, "households", "grid")]
    AnyReplicated = Literal[REPLICATED]

FlowName = Annotated[AnyFlow, Parameter(help="flow")]
SettingsFile = Annotated[Path, Parameter(help="settings file of the run")]
RunFolder = Annotated[
    Path,
    Parameter(
        help="folder of a run: the --run-dir of 'spineflow run', or the folder it made in runs/ "
        "next to the settings file"
    ),
]
Overrides = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="override one setting, as SECTION.KEY=VALUE; may be given several times",
    ),
]
AsJson = Annotated[bool, Parameter(name="--json", help="print JSON instead of tables")]
