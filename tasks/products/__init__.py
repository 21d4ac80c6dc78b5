"""Several products of one dataset, charged to one ledger."""
