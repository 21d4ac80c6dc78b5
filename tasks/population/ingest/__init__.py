"""The finished releases that one population is made of."""
