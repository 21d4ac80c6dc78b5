"""The TopDown Algorithm: redistricting data of persons and housing units, one folder a stage."""
