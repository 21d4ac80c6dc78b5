"""Group sizes that are consistent between levels, from noisy vectors."""
