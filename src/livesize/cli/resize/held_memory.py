"""Memory that a workload holds, so that a shrink has to wait, from what a condition says. Pure.

    app holds 100Mi, 36Mi to free: ...: memory limit (67108864) below current usage (104857600), ...

Kubernetes says the part after the colon; of a virtual machine it is what its guest uses.
"""

from __future__ import annotations


def held_memory(message: str) -> str:
    """Who holds how much, in one line for people; empty where the message says nothing of it."""
    by_guest = message.startswith("memory:") and ": the guest uses" in message
    if not by_guest and "below current usage" not in message:
        return ""
    short, _, rest = message.partition(" to free: ")
    return f"{short} to free" if rest else message
