"""Counts for each disruption budget how many of its pods may leave."""
