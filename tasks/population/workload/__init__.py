"""What households are made of: places, types and their slots, and tables of both universes."""
