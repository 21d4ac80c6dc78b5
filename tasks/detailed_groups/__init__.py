"""SafeTab-P: adaptive tables of detailed race and ethnicity groups, one folder a stage."""
