"""Who a virtual machine is, whichever pod runs it. Pure.

A VM has a uid of its own: its domain's name and UUID come from that, on whatever node it runs. A VM
that was never migrated has the uid of the pod that made it.
"""

from __future__ import annotations

from livesize.api.objects import Object, uid_of


def vm_uid_of(pod: Object) -> str:
    return uid_of(pod)
