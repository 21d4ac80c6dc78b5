"""What flows are made of: a folder for each product, and the rooms that products share.

In every folder `steps.py` holds the Prefect tasks; the other modules are plain functions on
arrays and frames that a test or a notebook can call.
"""

if __name__ != "spineflow.tasks":  # A second copy would have classes of its own.
    raise ImportError("import spineflow.tasks; tasks is not its name")
