"""Counts what is used of each quota, in case the API server has missed something."""
