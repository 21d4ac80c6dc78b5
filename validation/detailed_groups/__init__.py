"""Independent checks of a run over detailed race and ethnicity groups."""
