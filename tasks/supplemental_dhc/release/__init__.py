"""The released tables, and what report and certificate say of them."""
