"""What trips must satisfy: rules on the input, and checks of a finished run."""
