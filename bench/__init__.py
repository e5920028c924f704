"""Measures Livesize against the bare calls underneath it: ``python -m bench``."""
