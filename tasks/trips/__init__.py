"""InfTDA: trips between areas and other non-negative trees, one folder a stage."""
