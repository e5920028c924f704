"""POST of pods/X/binding: the scheduler puts a pod on a node, once."""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind, conflict, invalid
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve, generation_of, lookup, uid_of
from livesize.api.resize_state import bind_allocated
from livesize.apiserver.subresources.change import SentChange


def bind_pod(change: SentChange) -> Object:
    """From here on allocated no longer follows the spec: the node has the say (decisions 4)."""
    node = _node_named(change)
    name = change.target.name
    uid = lookup(change.incoming, "metadata", "uid", default="")
    if uid and uid != uid_of(change.stored):
        why = f"the binding is for the pod with uid {uid}, this one has {uid_of(change.stored)}"
        raise conflict(PODS, name, why)
    if lookup(change.stored, "metadata", "deletionTimestamp"):
        raise conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host")
    bound_to = lookup(change.stored, "spec", "nodeName")
    if bound_to:
        raise conflict(PODS, name, f'pod {name} is already assigned to node "{bound_to}"')
    bound = evolve(change.stored, ("spec", "nodeName"), node)
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": change.now,
        "observedGeneration": generation_of(change.stored),
    }
    others = [
        condition
        for condition in lookup(bound, "status", "conditions", default=[])
        if condition.get("type") != "PodScheduled"
    ]
    bound = evolve(bound, ("status", "conditions"), [*others, scheduled])
    # The generation stays: being put somewhere is no change of what was asked (Kubernetes).
    return bind_allocated(bound)


def _node_named(change: SentChange) -> str:
    target = change.incoming.get("target")
    kind = lookup(target, "kind", default="Node")
    node = lookup(target, "name", default="")
    if kind != "Node":
        error = FieldError(
            FieldErrorKind.NOT_SUPPORTED, "target.kind", 'supported values: "Node"', kind
        )
        raise invalid("Binding", "", change.target.name, [error])
    if not isinstance(node, str) or not node:
        error = FieldError(FieldErrorKind.REQUIRED, "target.name", "the node to bind to")
        raise invalid("Binding", "", change.target.name, [error])
    return node
