"""Input of the group-sizes flow: tables of groups or persons, and the region hierarchy."""
