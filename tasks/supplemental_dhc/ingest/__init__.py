"""From persons and units to counts of people in households of every area."""
