"""Release of detailed race and ethnicity groups: tables, report and the explorer of budgets."""
