"""Composition roots: the only place that picks implementations."""
