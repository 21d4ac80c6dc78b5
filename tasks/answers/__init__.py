"""Answers to queries as files: noisy measurements, constraints and estimates."""
