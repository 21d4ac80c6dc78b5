"""Detailed race and ethnicity groups (SafeTab-P): what is asked, of whom, at which budget."""
