"""Detailed race and ethnicity groups (SafeTab-P): queries, groups and budgets."""
