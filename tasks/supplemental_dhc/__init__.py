"""Supplemental demographic and housing characteristics: people joined with their households."""
