"""Input tables: sources, readers, layouts, columns, and what is found wrong in them."""
