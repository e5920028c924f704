"""The rigs of the unit tests, for bugs that were found and must not come back."""

from __future__ import annotations

from unit.agent.conftest import world
from unit.apiserver.conftest import rig

__all__ = ["rig", "world"]
