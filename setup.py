"""The distribution: the folders at the top of the repository, as packages within `spineflow`."""

import shutil

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = ("flows", "tasks", "geography", "validation")


class FreshBuild(build_py):
    """Builds into an empty folder: what an earlier build left there would be packed too."""

    def run(self) -> None:
        """Build."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


found = find_packages(include=[pattern for name in FOLDERS for pattern in (name, f"{name}.*")])
setup(
    packages=["spineflow", *(f"spineflow.{name}" for name in found)],
    cmdclass={"build_py": FreshBuild},
)
