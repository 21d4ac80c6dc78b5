"""Prefect flows: they wire tasks and pick the runner, nothing else.

Importing this package sets defaults in the environment, which have to be set before Prefect and
NumPy are loaded; the user's values win.
"""

import os
import time

if __name__ != "spineflow.flows":  # A second copy would have classes of its own.
    raise ImportError("import spineflow.flows; flows is not its name")

STARTED = time.monotonic()
"""When this package was imported, which is a command's first act."""

for _name, _value in {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    # The embedded server needs more than its default 20 seconds on a busy machine.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    # Solves run side by side in workers; one thread each keeps them from competing.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # Memory kept by Arrow's own allocator is lost to pandas and NumPy.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}.items():
    os.environ.setdefault(_name, _value)

# A proxy that an office sets for everybody does not reach the command's own server.
_exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
_further = [host for host in ("127.0.0.1", "localhost", "::1") if host not in _exempt.split(",")]
if any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in os.environ):
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, [_exempt, *_further]))
