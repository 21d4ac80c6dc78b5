"""What flows are made of: a folder for each product, and the rooms that products share.

In every folder `steps.py` holds the Prefect tasks; the other modules are plain functions on
arrays and frames that a test or a notebook can call.

Importing this package finds a folder for compiled kernels where numba would find none. Numba keeps
them beside the modules, or else in the user's cache; over an installation that cannot be written,
for a user without a home, it refuses every module with kernels.
"""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

if __name__ != "spineflow.tasks":  # A second copy would have classes of its own.
    raise ImportError("import spineflow.tasks; tasks is not its name")

VARIABLE = "NUMBA_CACHE_DIR"


def choose_kernel_cache() -> None:
    """Set NUMBA_CACHE_DIR to a folder in the one for temporary files if numba could write neither
    beside the modules nor below the user's home; what the user has set wins.

    Called before numba is imported.
    """
    if VARIABLE in os.environ or _is_writable(Path(__file__).with_name("__pycache__")):
        return
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Of a user whom the system does not know the path begins with ~ as it was.
    if cache.startswith("~") or not _is_writable(Path(cache, "numba")):
        os.environ[VARIABLE] = _own_folder(Path(tempfile.gettempdir()))


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _own_folder(parent: Path) -> str:
    """A folder of this user alone, the same in every process where that is possible.

    Numba runs what it finds there, so that a folder which others could write is not taken.
    """
    folder = parent / f"spineflow-kernels-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        return str(folder)
    return tempfile.mkdtemp(prefix=f"{folder.name}-", dir=parent)


choose_kernel_cache()
