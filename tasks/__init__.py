"""What flows are made of: a folder for each product, and the rooms that products share.

In every folder `steps.py` holds the Prefect tasks; the other modules are plain functions on
arrays and frames that a test or a notebook can call.
"""
