"""Release of detailed race and ethnicity groups: tables and report."""
