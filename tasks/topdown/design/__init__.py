"""The best split of a budget: the allocation with the smallest variances of the chosen targets,
with proof that none is much better."""
