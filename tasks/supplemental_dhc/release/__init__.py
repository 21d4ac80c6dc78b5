"""The released tables, and their texts in report and certificate."""
