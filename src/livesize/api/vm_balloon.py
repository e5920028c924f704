"""What a virtual machine with a balloon has besides its size (decisions 46). Pure.

It boots with its maximum, and its balloon then takes what it is not to have. Until the guest has
given that back its node cannot give it to anyone else.
"""

from __future__ import annotations

from livesize.api.objects import Object, lookup
from livesize.api.quantity import memory_bytes
from livesize.api.resources import is_vm, parse_resources
from livesize.api.vm_size import boots_with_maximum, guest_memory_of, known_technology


def held_by_guest(pod: Object, allocated: Object) -> int | None:
    """Bytes that the guest still has, where they are more than its ``allocated`` size; until its
    node has said how much it has, the maximum. None without a balloon, and once it has fallen."""
    if not is_vm(pod) or not boots_with_maximum(known_technology(pod)):
        return None
    told = lookup(pod, "status", "virtualMachineStatus", "guest", "memoryPlugged")
    if told is None:
        told = lookup(pod, "spec", "virtualMachine", "memory", "max", default="0")
    held_bytes = memory_bytes(told)
    return held_bytes if held_bytes > guest_memory_of(parse_resources(allocated)) else None
