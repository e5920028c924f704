"""Pods as `kubectl edit` can work with them. Pure.

It computes its patch with the Go types it was built with, and gives up at the first object inside a
pod that these do not have. So it is shown pods without them; what it does not see, its patch does
not touch. kubectl says in a header which of its commands is asking.
"""

from __future__ import annotations

from typing import Any

import msgspec

from livesize.api.dialects import strip_dialects
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.resources import is_vm
from livesize.apiserver.http.requests import Request
from livesize.apiserver.records import Record, encode

_COMMAND = "kubectl edit"
_UNKNOWN_TO_KUBECTL = (("spec", "virtualMachine"), ("status", "virtualMachineStatus"))


def is_edited(request: Request) -> bool:
    return request.headers.get("kubectl-command", "") == _COMMAND


def editable(record: Record) -> Record:
    """The record with the bytes that `kubectl edit` is shown."""
    if record.resource != PODS:
        return record
    return msgspec.structs.replace(record, encoded=encode(_editable_pod(record.served)))


def _editable_pod(served: Object) -> Object:
    pod = without(strip_dialects(served), ("status", "resizeState"))
    if is_vm(served):
        pod = evolve(pod, ("spec", "containers"), served["spec"]["containers"])
    for path in _UNKNOWN_TO_KUBECTL:
        pod = without(pod, path)
    containers = lookup(pod, "spec", "containers")
    if not containers:
        return pod
    return evolve(pod, ("spec", "containers"), [_editable_container(one) for one in containers])


def _editable_container(container: Any) -> Any:
    """Without IBM's map of policies, which stands where Kubernetes has none."""
    return without(container, ("resources", "resizePolicy"))
