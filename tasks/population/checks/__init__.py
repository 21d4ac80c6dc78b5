"""Expectations of one population for the independent checks, and agreement of persons and
households.
"""
