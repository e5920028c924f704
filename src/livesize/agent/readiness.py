"""Whether the conditions that a pod names as readiness gates hold. Pure."""

from __future__ import annotations

from livesize.api.conditions import find_condition
from livesize.api.objects import Object, lookup


def unmet_gates(pod: Object) -> list[str]:
    """A sentence for each gate whose condition is not True, in Kubernetes' words."""
    found = []
    for gate in lookup(pod, "spec", "readinessGates", default=[]):
        name = gate.get("conditionType", "")
        condition = find_condition(pod, name)
        if condition is None:
            found.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif condition.get("status") != "True":
            status = condition.get("status")
            found.append(f'the status of pod readiness gate "{name}" is not "True", but {status}')
    return found
