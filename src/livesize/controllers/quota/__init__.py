"""Counts what is used of each quota, in case the door has missed something."""
