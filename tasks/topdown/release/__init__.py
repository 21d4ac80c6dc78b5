"""Microdata, tabulations and reports made from estimates."""
