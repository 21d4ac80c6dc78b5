"""Evidence: what each protection method costs and withstands, side by side on one census."""
