"""Rules on the input of the group-sizes flow, and checks of what it releases."""
