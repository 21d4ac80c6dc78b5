"""Microdata, tables, certificate and report of a topdown run, made from its estimates."""
