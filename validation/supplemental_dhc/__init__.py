"""Rules on the input of the supplemental-dhc flow, and checks of its release."""
