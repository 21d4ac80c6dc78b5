"""Studies: settings released again and again under many seeds, on data that may be known."""
