"""What is measured: the counts of the tables PH1 to PH8, their noise, and what that costs."""
