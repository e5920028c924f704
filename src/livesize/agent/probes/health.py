"""What probes have found out about one start of a container."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """What is known of one start. ``unhealthy``: why it has to be stopped."""

    started: bool = True
    ready: bool = True
    unhealthy: str = ""


WELL = Health()
