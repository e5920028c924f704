"""Collects what nobody owns any more, and what goes with its owner."""
