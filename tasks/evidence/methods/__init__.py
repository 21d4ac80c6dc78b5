"""Protection methods: plain functions from people or true tables to published tables."""
