"""Input of the trips flow: area hierarchies, tables of trips, and tables as trees."""
