"""The stages of the flows, one folder each.

In every folder `steps.py` holds the Prefect tasks; the other modules are plain functions on
arrays and frames that a test or a notebook can call.
"""
