"""Marginals, suppression and coterminous geographies of tabulated releases."""
