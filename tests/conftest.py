"""Loads our plugins for every test: tiers (which, when, how long) and leaks (nothing is left)."""

from __future__ import annotations

pytest_plugins = ["pytester", "tiers", "leaks"]
