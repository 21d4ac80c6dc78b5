"""The best split of a budget: which allocation gives the smallest variances of what is wanted,
with proof that none is much better."""
