"""What the group-size mechanisms ask: region hierarchies, measured vectors, calibrations."""
