"""Noise, accounting, the ledger and noisy-measurement files."""
