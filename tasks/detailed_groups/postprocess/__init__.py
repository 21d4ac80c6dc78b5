"""Postprocessing of detailed race and ethnicity groups: what of the measurements is shown."""
