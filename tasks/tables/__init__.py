"""Input tables: sources, readers, layouts, columns, and findings."""
