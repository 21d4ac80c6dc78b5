"""Census tables that several products read: columns, recodes, block histograms and invariants."""
