"""What is asked: schemas, marginal queries, and how a budget is shared among them."""
