"""Composition roots: the only place that picks implementations and puts processes together."""
