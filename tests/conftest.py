"""Loads our plugins for every test: tiers (which, when, how long), leaks (nothing is left), virtual
time, booted guests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tiers", "leaks", "containerd_folders", "virtual_time"]
pytest_plugins += ["booted_guests"]

# A busy machine is slow, not ill; what a daily run finds it finds again, and new ground is broken
# by the long runs.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("daily", max_examples=30, derandomize=True, **_PATIENT)
settings.register_profile("matrix", max_examples=1000, **_PATIENT)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("matrix" if config.getoption("--matrix") else "daily")
