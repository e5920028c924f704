"""Decides whether a valid change is also permitted: an ordered list of rules. Pure.

- PodSecurity: everyone but an admin gets the baseline, and what the namespace's label enforces
  holds for all (design 5.6).
- Programs: where containers are processes of a machine, and the API server answers other machines,
  only an admin brings programs there (livesize.apiserver.admission.trust).
- NodeRestriction: a node touches only itself, its own pods and its own lease, and of itself neither
  labels, taints, owners nor whether it is cordoned (livesize.apiserver.admission.node_restriction).
- PodResourceAllocation: what the node has promised is moved only by the pod's own node (ARK,
  "a new admission controller named PodResourceAllocation"; decisions 4).
- LimitRanger: a new pod, and every resize, keeps within the namespace's LimitRanges (F18); so does
  a claim.
- PodResize: a pod is resized on a Linux node that is there (facts D.4).
- HostPaths: only an admin names paths of the machine in a VM; everyone else names images (5.6).
- Storage: a claim grows only where its class lets it (livesize.apiserver.admission.storage).
- Priority: one class at most is the default. (That pods get their class's value is done before
  they are validated: livesize.apiserver.admission.mutation.)

ResourceQuota comes after all of these, because it is charged in the same commit
(livesize.apiserver.admission.quota).

Rules see the object as it would be stored and as it is stored, and either refuse or let pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from livesize.api.errors import Cause
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.priority_class import PRIORITY_CLASSES
from livesize.api.limits import claim_problems, limit_problems
from livesize.api.objects import Object, lookup, name_of
from livesize.api.pod_security import SecurityLevel, level_of, violations
from livesize.api.resize_state import is_bound, resize_state
from livesize.api.resources import resizable_of
from livesize.api.roles import Role
from livesize.api.validation.vm import IMAGE_PATHS, host_paths
from livesize.apiserver.admission.node_restriction import forbids_write
from livesize.apiserver.admission.storage import forbids_growth
from livesize.apiserver.admission.trust import Distrust
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.auth.identities import Identity


class AdmissionContext(msgspec.Struct, frozen=True):
    """The other objects that a change has to agree with; empty where they do not matter."""

    namespace: Object | None = None
    limit_ranges: tuple[Object, ...] = ()
    priority_classes: tuple[Object, ...] = ()
    storage_classes: tuple[Object, ...] = ()
    distrust: Distrust | None = None  # of everyone but admins, where programs are the machine's


EMPTY_CONTEXT = AdmissionContext()


class AdmissionRequest(msgspec.Struct, frozen=True):
    """One change about to be committed. ``old`` is None for a create, ``new`` for a delete;
    ``node`` is the Node a pod is bound to, None where it is not known or does not matter."""

    identity: Identity
    access: Access
    old: Object | None
    new: Object | None
    node: Object | None = None
    context: AdmissionContext = EMPTY_CONTEXT


class AdmissionRefusal(msgspec.Struct, frozen=True):
    why: str
    causes: tuple[Cause, ...] = ()


AdmissionRule: TypeAlias = Callable[[AdmissionRequest], AdmissionRefusal | None]


def admit(request: AdmissionRequest) -> AdmissionRefusal | None:
    """The first rule that refuses speaks; None means admitted."""
    for rule in RULES:
        refused = rule(request)
        if refused is not None:
            return refused
    return None


def restrict_node(request: AdmissionRequest) -> AdmissionRefusal | None:
    if request.identity.role is not Role.NODE:
        return None
    why = forbids_write(request.identity.node, request.access, request.old, request.new)
    return AdmissionRefusal(why) if why else None


def guard_allocation(request: AdmissionRequest) -> AdmissionRefusal | None:
    if request.access.resource != PODS or request.old is None or request.new is None:
        return None
    if request.access.subresource == "resizing" or _is_own_pod(request):
        return None
    before, after = resize_state(request.old), resize_state(request.new)
    if before is after or (before.get("allocated") or []) == (after.get("allocated") or []):
        return None
    if not is_bound(request.old):
        return None
    return AdmissionRefusal("resourcesAllocated is moved only by the node the pod runs on")


def guard_resize(request: AdmissionRequest) -> AdmissionRefusal | None:
    """Nobody could carry out a resize on a node that is gone, or one that runs Windows."""
    if request.node is not None and _operating_system(request.node) in ("", "linux"):
        return None
    bound_to = lookup(request.old, "spec", "nodeName", default="")
    if not asks_for_resize(request.access, request.old, request.new) or not bound_to:
        return None
    if request.node is None:
        return AdmissionRefusal(f'node "{bound_to}" not found')
    system = _operating_system(request.node)
    why = f'pod resize is only supported on linux nodes, node "{bound_to}" is "{system}"'
    return AdmissionRefusal(why, (Cause("UnsupportedPlatform", why),))


def asks_for_resize(access: Access, old: Object | None, new: Object | None) -> bool:
    """The containers' resources are others than before."""
    if old is None or new is None or not may_resize(access):
        return False
    return _sizes(old) != _sizes(new)


def may_resize(access: Access) -> bool:
    """By pods/resize, or by a change of the pod itself (decisions 3)."""
    return access.subresource in ("", "resize") and access.resource == PODS


def guard_host_paths(request: AdmissionRequest) -> AdmissionRefusal | None:
    if request.access.resource != PODS or request.identity.role is Role.ADMIN:
        return None
    if _spec(request.new) is _spec(request.old) or _images(request.new) == _images(request.old):
        return None
    paths = host_paths(lookup(request.new, "spec", "virtualMachine", default={}))
    if not paths:
        return None
    return AdmissionRefusal(
        f"{', '.join(paths)}: only an admin may name a path of the machine; use the name of an"
        " image in the node's images directory"
    )


def guard_security(request: AdmissionRequest) -> AdmissionRefusal | None:
    """On create: later nothing can change that matters here. Whoever may label a namespace could
    lower the level for himself, so for everyone but an admin it is never below the baseline."""
    if request.access.resource != PODS or request.old is not None or request.new is None:
        return None
    level = level_of(request.context.namespace) or SecurityLevel.PRIVILEGED
    if request.identity.role is not Role.ADMIN:
        level = max(level, SecurityLevel.BASELINE)
    found = violations(request.new, level)
    if not found:
        return None
    return AdmissionRefusal(
        f'violates PodSecurity "{level.name.lower()}:latest": {", ".join(found)}'
    )


def guard_programs(request: AdmissionRequest) -> AdmissionRefusal | None:
    distrust = request.context.distrust
    if distrust is None or request.access.resource != PODS or request.new is None:
        return None
    why = distrust.forbids_change(request.identity, request.old, request.new)
    return AdmissionRefusal(why) if why else None


def guard_limits(request: AdmissionRequest) -> AdmissionRefusal | None:
    if request.new is None or not request.context.limit_ranges:
        return None
    problems = _limit_problems(request, request.new)
    if not problems:
        return None
    return AdmissionRefusal(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def _limit_problems(request: AdmissionRequest, new: Object) -> list[str]:
    """Of what is asked for now: what is there already stays as it is."""
    access, old, limits = request.access, request.old, request.context.limit_ranges
    if access.resource == PERSISTENT_VOLUME_CLAIMS:
        return claim_problems(new, limits) if old is None or old["spec"] != new["spec"] else []
    if access.resource != PODS or (old is not None and not asks_for_resize(access, old, new)):
        return []
    return limit_problems(new, limits)


def guard_priority(request: AdmissionRequest) -> AdmissionRefusal | None:
    if request.access.resource != PRIORITY_CLASSES or request.new is None:
        return None
    if not request.new.get("globalDefault"):
        return None
    for other in request.context.priority_classes:
        if other.get("globalDefault") and name_of(other) != name_of(request.new):
            return AdmissionRefusal(
                f"PriorityClass {name_of(other)} is already marked as default. Only one default"
                " can exist"
            )
    return None


def guard_growth(request: AdmissionRequest) -> AdmissionRefusal | None:
    old, new = request.old, request.new
    if request.access.resource != PERSISTENT_VOLUME_CLAIMS or old is None or new is None:
        return None
    why = forbids_growth(old, new, request.context.storage_classes)
    return AdmissionRefusal(why) if why else None


RULES: tuple[AdmissionRule, ...] = (
    guard_security,
    guard_programs,
    restrict_node,
    guard_allocation,
    guard_limits,
    guard_resize,
    guard_host_paths,
    guard_priority,
    guard_growth,
)


def _is_own_pod(request: AdmissionRequest) -> bool:
    return bool(request.identity.node) and (
        lookup(request.old, "spec", "nodeName") == request.identity.node
    )


def _sizes(pod: Object) -> list[tuple[Object | None, Object | None]]:
    resources = [container.get("resources") or {} for container in resizable_of(pod)]
    return [(one.get("requests"), one.get("limits")) for one in resources]


def _spec(pod: Object | None) -> Object | None:
    return None if pod is None else pod.get("spec")


def _images(pod: Object | None) -> list[str]:
    vm = lookup(pod, "spec", "virtualMachine", default={})
    return [lookup(vm, *path, default="") for path in IMAGE_PATHS]


def _operating_system(node: Object) -> str:
    """What the node reports, else what its label says; empty where neither does."""
    reported = ((node.get("status") or {}).get("nodeInfo") or {}).get("operatingSystem")
    return str(reported or (node["metadata"].get("labels") or {}).get("kubernetes.io/os", ""))
