"""The release of trips: the table, its range queries, the certificate and the report."""
