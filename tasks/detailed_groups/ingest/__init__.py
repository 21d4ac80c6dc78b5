"""Input of detailed race and ethnicity groups: parameters, persons, geography, true counts."""
