"""What privacy loss is, what is spent of it, and the ledger that every draw is charged to."""
