"""A finished release for people and systems outside the office."""
