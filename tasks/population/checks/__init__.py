"""What is expected of one population, told to the independent checks."""
