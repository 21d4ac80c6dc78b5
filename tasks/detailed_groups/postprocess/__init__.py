"""Postprocessing of detailed race and ethnicity groups: from measurements to released counts."""
