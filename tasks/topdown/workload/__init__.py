"""The workload: schemas, marginal queries, and the split of a budget among them."""
