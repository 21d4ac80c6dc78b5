"""Pages that people read: documents of headings, paragraphs, tables and figures."""
