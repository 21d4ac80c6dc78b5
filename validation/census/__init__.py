"""Rules on the census tables, which several products read."""
