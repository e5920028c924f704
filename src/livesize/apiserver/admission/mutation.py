"""What admission fills into a new pod before it is validated: its priority, and the defaults of
the namespace's LimitRanges. Pure."""

from __future__ import annotations

from livesize.api.limits import with_limit_defaults
from livesize.api.objects import Object, lookup, name_of, without
from livesize.apiserver.admission.plan import AdmissionContext, AdmissionRefusal


def fill_pod(pod: Object, context: AdmissionContext) -> Object | AdmissionRefusal:
    """``pod`` went through ``default_object``, and has to once more: its QoS class may be another
    one now."""
    prioritized = _with_priority(pod, context.priority_classes)
    if isinstance(prioritized, AdmissionRefusal):
        return prioritized
    filled = with_limit_defaults(prioritized, context.limit_ranges)
    return pod if filled == pod else without(filled, ("status", "qosClass"))


def keep_priority(stored: Object, incoming: Object) -> Object:
    """What was filled in stays when a client that does not know it sends the pod back."""
    spec = incoming.get("spec")
    if not isinstance(spec, dict):
        return incoming
    preserved = {
        key: value
        for key in ("priority", "preemptionPolicy", "priorityClassName")
        if (value := lookup(stored, "spec", key)) is not None and spec.get(key) is None
    }
    return {**incoming, "spec": {**spec, **preserved}} if preserved else incoming


def _with_priority(pod: Object, classes: tuple[Object, ...]) -> Object | AdmissionRefusal:
    spec = pod["spec"] if pod.get("spec") else {}
    named = spec.get("priorityClassName")
    chosen = [one for one in classes if (name_of(one) == named if named else _is_default(one))]
    if not chosen and named:
        return AdmissionRefusal(f"no PriorityClass with name {named} was found")
    if not chosen:
        return _refuse_number(spec["priority"], 0) if spec.get("priority") else pod
    value = chosen[0].get("value", 0)
    if spec.get("priority", value) != value:
        return _refuse_number(spec["priority"], value)
    policy = chosen[0].get("preemptionPolicy", "PreemptLowerPriority")
    if spec.get("preemptionPolicy", policy) != policy:
        return AdmissionRefusal(
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be"
            f" provided in pod spec; priority admission controller computed {policy} from the"
            " given PriorityClass name"
        )
    filled = {"priority": value, "priorityClassName": name_of(chosen[0])}
    return {**pod, "spec": {**spec, **filled, "preemptionPolicy": policy}}


def _refuse_number(given: int, value: int) -> AdmissionRefusal:
    """What a pod is worth is said by a class, which an admin makes."""
    return AdmissionRefusal(
        f"the integer value of priority ({given}) must not be provided in pod spec;"
        f" priority admission controller computed {value} from the given PriorityClass name"
    )


def _is_default(priority: Object) -> bool:
    return bool(priority.get("globalDefault"))
