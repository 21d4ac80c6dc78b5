"""Rules on the input of the group-sizes flow, and checks of its release."""
