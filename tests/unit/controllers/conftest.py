"""The API server that controllers work on."""

from __future__ import annotations

from unit.apiserver.conftest import rig

__all__ = ["rig"]
