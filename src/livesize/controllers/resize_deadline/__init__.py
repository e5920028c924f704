"""Resizes that take longer than their pod allows."""
