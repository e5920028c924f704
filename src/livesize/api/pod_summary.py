"""What people call the state and the size of a pod: kubectl's STATUS word, "cpu 500m/1"."""

from __future__ import annotations

from collections.abc import Sequence

from livesize.api.conditions import is_true
from livesize.api.objects import Object, lookup
from livesize.api.quantity import QuantityError
from livesize.api.resources import ResourceName, format_amounts, parse_amounts, total
from livesize.api.vm_status import statuses_of


def pod_status_text(pod: Object) -> str:
    """The STATUS that kubectl prints: the phase, or the most telling container state."""
    word = str(lookup(pod, "status", "reason") or lookup(pod, "status", "phase", default="Unknown"))
    starting = _init_word(pod)
    word = starting or _container_word(pod, word)
    if lookup(pod, "metadata", "deletionTimestamp"):
        return "Unknown" if lookup(pod, "status", "reason") == "NodeLost" else "Terminating"
    return word


def resources_text(sizes: Sequence[Object]) -> str:
    """The sum of several sizes as ``cpu 500m/1 memory 64Mi/128Mi`` (requests/limits); a dash
    where nothing is set, or where one container has no limit."""
    try:
        requests = format_amounts(total(parse_amounts(size.get("requests")) for size in sizes))
        limits = format_amounts(total(parse_amounts(size.get("limits")) for size in sizes))
    except QuantityError:
        return "<invalid>"
    words = []
    for resource in ResourceName:
        unlimited = any(resource not in (size.get("limits") or {}) for size in sizes)
        limit = "-" if unlimited else limits.get(resource, "-")
        request = requests.get(resource, "-")
        if (request, limit) != ("-", "-"):
            words.append(f"{resource} {request}/{limit}")
    return " ".join(words) or "<none>"


def _init_word(pod: Object) -> str:
    """``Init:…`` while an init container has not done its work."""
    containers = lookup(pod, "spec", "initContainers", default=[])
    sidecars = {one.get("name") for one in containers if one.get("restartPolicy") == "Always"}
    for index, status in enumerate(lookup(pod, "status", "initContainerStatuses", default=[])):
        terminated = lookup(status, "state", "terminated")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if status.get("name") in sidecars and status.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_terminated_word(terminated)}"
        reason = lookup(status, "state", "waiting", "reason", default="")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{index}/{len(containers)}"
    return ""


def _container_word(pod: Object, word: str) -> str:
    """The first container, in spec order, that waits or has ended says what to show."""
    running = False
    for status in reversed(statuses_of(pod)):
        state = status.get("state") or {}
        if lookup(state, "waiting", "reason"):
            word = str(state["waiting"]["reason"])
        elif state.get("terminated") is not None:
            word = _terminated_word(state["terminated"])
        elif status.get("ready") and state.get("running") is not None:
            running = True
    if word == "Completed" and running:
        return "Running" if is_true(pod, "Ready") else "NotReady"
    return word


def _terminated_word(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
