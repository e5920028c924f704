"""The API server of the unit tests, for what the design documents say of requests."""

from __future__ import annotations

from unit.apiserver.conftest import rig

__all__ = ["rig"]
