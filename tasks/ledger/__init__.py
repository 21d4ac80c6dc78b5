"""Privacy loss, its spending, and the ledger that every draw is charged to."""
