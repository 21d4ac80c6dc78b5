"""Noisy counts of detailed race and ethnicity groups: the adaptive mechanism in two stages."""
