"""What a household can be made of: places, and patterns of them by type of household."""
