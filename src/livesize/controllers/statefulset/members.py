"""The pods of a stateful set and their claims: who is who, and how a new one looks. Pure.

A pod is told from the others by its number. It gives the pod its name and host name (web-3), and
its claims theirs (data-web-3), so that a pod that is made anew finds what its predecessor left.
"""

from __future__ import annotations

from collections.abc import Iterator

from livesize.api.kinds.pod import PODS
from livesize.api.kinds.stateful_set import DELETE, STATEFUL_SETS
from livesize.api.objects import Object, evolve, lookup, name_of, namespace_of, uid_of
from livesize.api.resources import is_vm
from livesize.api.workloads import replicas_of, selects
from livesize.controllers.kit.owned_pods import make_pod, owner_reference

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"


def ordinal_of(stateful_set: Object, pod: Object) -> int | None:
    """The number in the pod's name; None: it is no name of a pod of this set."""
    number = name_of(pod).removeprefix(f"{name_of(stateful_set)}-")
    if not (number.isascii() and number.isdigit()) or str(int(number)) != number:
        return None
    return int(number)


def is_member(stateful_set: Object, pod: Object) -> bool:
    return ordinal_of(stateful_set, pod) is not None and selects(stateful_set, pod)


def first_ordinal(stateful_set: Object) -> int:
    return int(lookup(stateful_set, "spec", "ordinals", "start", default=0))


def ordinals_of(stateful_set: Object) -> range:
    """The numbers that its pods are to have."""
    first = first_ordinal(stateful_set)
    return range(first, first + replicas_of(stateful_set))


def revision_of(pod: Object) -> str:
    return str(lookup(pod, "metadata", "labels", REVISION_LABEL, default=""))


def identity_labels(name: str, ordinal: int) -> dict[str, str]:
    return {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}


def make_member(stateful_set: Object, template: Object, ordinal: int, revision: str) -> Object:
    """The pod of that number, from a template that ``revision`` stores."""
    name = f"{name_of(stateful_set)}-{ordinal}"
    pod = make_pod(STATEFUL_SETS, stateful_set, template)
    labels = lookup(pod, "metadata", "labels", default={})
    labels = {**labels, **identity_labels(name, ordinal), REVISION_LABEL: revision}
    metadata = {
        **pod["metadata"],
        "name": name,
        "namespace": namespace_of(stateful_set),
        "labels": labels,
    }
    spec = dict(pod["spec"])
    if not is_vm(pod):  # a guest names itself
        spec["hostname"] = name
    service = lookup(stateful_set, "spec", "serviceName", default="")
    spec.pop("subdomain", None)
    if service:
        spec["subdomain"] = service
    volumes = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        for volume, claim in claim_names(stateful_set, ordinal)
    ]
    if volumes:
        own = {volume["name"] for volume in volumes}
        spec["volumes"] = volumes + [
            volume for volume in spec.get("volumes") or [] if volume.get("name") not in own
        ]
    return {**pod, "metadata": metadata, "spec": spec}


# Claims


def claim_names(stateful_set: Object, ordinal: int) -> Iterator[tuple[str, str]]:
    """For each template: its name, which is the volume's, and the name of the pod's own claim."""
    for template in lookup(stateful_set, "spec", "volumeClaimTemplates", default=()):
        yield name_of(template), f"{name_of(template)}-{name_of(stateful_set)}-{ordinal}"


def make_claims(stateful_set: Object, ordinal: int) -> Iterator[Object]:
    """The claims of the pod of that number, in the order of their templates."""
    selected = lookup(stateful_set, "spec", "selector", "matchLabels", default={})
    templates: list[Object] = lookup(stateful_set, "spec", "volumeClaimTemplates", default=[])
    for template, (_, name) in zip(templates, claim_names(stateful_set, ordinal), strict=True):
        given = template["metadata"]
        metadata = {
            "name": name,
            "namespace": namespace_of(stateful_set),
            "labels": {**(given.get("labels") or {}), **selected},
        }
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        claim = {**template, "metadata": metadata}
        claim.pop("status", None)
        yield owned_claim(stateful_set, claim)


def owned_claim(
    stateful_set: Object, claim: Object, pod: Object | None = None, *, leaves: bool = False
) -> Object:
    """``claim`` with the owners that the set's retention policy gives it: it goes with the set
    (whenDeleted), or with its pod when that ``leaves`` because the set has become smaller
    (whenScaled). One that another controller owns is left alone."""
    policy = lookup(stateful_set, "spec", "persistentVolumeClaimRetentionPolicy", default={})
    wanted = []
    if pod is not None and leaves and policy.get("whenScaled") == DELETE:
        wanted = [owner_reference(PODS, pod)]
    elif policy.get("whenDeleted") == DELETE:
        wanted = [owner_reference(STATEFUL_SETS, stateful_set)]
    before: list[Object] = lookup(claim, "metadata", "ownerReferences", default=[])
    ours = {uid_of(one) for one in (stateful_set, pod) if one is not None}
    others = [one for one in before if one.get("uid") not in ours]
    if [*others, *wanted] == before or any(one.get("controller") for one in others):
        return claim
    return evolve(claim, ("metadata", "ownerReferences"), [*others, *wanted])


def waits_for_collector(claim: Object, pod: str) -> bool:
    """Whether the claim goes, or would go with an earlier pod of that name."""
    if lookup(claim, "metadata", "deletionTimestamp"):
        return True
    owners = lookup(claim, "metadata", "ownerReferences", default=())
    return any((one.get("kind"), one.get("name")) == (PODS.kind, pod) for one in owners)
