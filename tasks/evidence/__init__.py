"""Evidence: what each protection method costs and what it withstands, side by side."""
