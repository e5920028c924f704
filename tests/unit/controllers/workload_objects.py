"""StatefulSets and Deployments on their way through a resize, as a controller sees them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from livesize.api.objects import Object, evolve, lookup, name_of
from livesize.api.workload_resize import HELD, RESIZE_STATUS
from livesize.apiserver.admission.workload_hold import hold_workload
from livesize.controllers.in_place.actions import (
    AdjustPod,
    DeleteReplicaSet,
    EvictPod,
    ReportStatus,
    ResizePod,
    SetReplicaSetTemplate,
    WorkloadPlan,
    WriteWorkload,
)
from livesize.controllers.in_place.plan import plan_workload
from livesize.controllers.in_place.view import Answers, WorkloadView, revision_of

NOW = 1_800_000_000.0
LONG_AGO, JUST_NOW = "2027-01-15T07:00:00Z", "2027-01-15T07:59:59Z"
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
TEMPLATE = ("spec", "template")
APP = (*TEMPLATE, "spec", "containers", 0)
CPU = (*APP, "resources", "limits", "cpu")

LIVE_POLICY = '{"app":{"cpu":"LiveResizeable","memory":"LiveResizeable"}}'


def template(cpu: str = "1", *, image: str = "busybox:1", **container: Any) -> Object:
    sizes = {"cpu": cpu, "memory": "1Gi"}
    app = {"name": "app", "image": image, "resources": {"requests": sizes, "limits": sizes}}
    return {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{**app, **container}]}}


def workload(kind: str, action: str = "InPlaceResizePreferred", **spec: Any) -> Object:
    """Steady, with three pods. Without an action, a policy asks for resizes in place."""
    annotations = (
        {"resizeAction": action} if action else {"livesize.dev/resize-policy": LIVE_POLICY}
    )
    metadata = {"name": "db", "namespace": "default", "uid": "u", "generation": 1}
    strategy = {"updateStrategy": ROLLING} if kind == "StatefulSet" else {}
    status = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}
    revisions = {"updateRevision": "r1", "currentRevision": "r1"}
    return {
        "kind": kind,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"replicas": 3, **strategy, "template": template(), **spec},
        "status": {**status, **(revisions if strategy else {})},
    }


def changed(old: Object, new_template: Object, **annotations: str) -> Object:
    """As the API server stores a user's write of the template, seen by its controller."""
    new = evolve(old, TEMPLATE, new_template)
    for name, value in annotations.items():
        new = evolve(new, ("metadata", "annotations", name), value)
    stored = observed(hold_workload(old, new), old)
    return evolve(stored, ("status", "updateRevision"), "r2")


def observed(new: Object, old: Object) -> Object:
    """After a write: the next generation where the spec has changed, and its controller knows."""
    generation = old["metadata"]["generation"] + (new["spec"] != old["spec"])
    new = evolve(new, ("metadata", "generation"), generation)
    return evolve(new, ("status", "observedGeneration"), generation)


def condition(reason: str, since: str = JUST_NOW, message: str = "as its node says") -> Object:
    pending = reason in ("Deferred", "Infeasible")
    kind = "PodResizePending" if pending else "PodResizeInProgress"
    said = {"type": kind, "status": "True", "message": message, "lastTransitionTime": since}
    return said if reason == "InProgress" else {**said, "reason": reason}


def pod(
    name: str,
    made_from: Object,
    revision: str = "",
    *conditions: Object,
    owner: str = "u",
    ready: bool = True,
    **metadata: Any,
) -> Object:
    sizes = made_from["spec"]["containers"][0]["resources"]
    status = {"name": "app", "resources": sizes, "allocatedResources": sizes["requests"]}
    since = {"lastTransitionTime": LONG_AGO}
    is_ready = {"type": "Ready", "status": str(ready), **since}
    labels = {"app": "db", **({"controller-revision-hash": revision} if revision else {})}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": labels,
            "ownerReferences": [{"uid": owner, "controller": True, "kind": "StatefulSet"}],
            **metadata,
        },
        "spec": made_from["spec"],
        "status": {
            "phase": "Running",
            "observedGeneration": 1,
            "conditions": [is_ready, *conditions],
            "containerStatuses": [status],
        },
    }


def requested(made: Object, made_from: Object, *conditions: Object) -> Object:
    """The pod, of which other sizes are requested: unjudged, or as the conditions say."""
    made = evolve(made, ("spec",), made_from["spec"])
    made = evolve(made, ("metadata", "generation"), made["metadata"]["generation"] + 1)
    said = [*lookup(made, "status", "conditions", default=[]), *conditions]
    return evolve(made, ("status", "conditions"), said)


def set_view(
    stateful_set: Object,
    pods: Iterable[Object],
    *,
    budgets: Iterable[Object] = (),
    answers: Answers = Answers(),  # noqa: B008 - it never changes
    **revisions: Object,
) -> WorkloadView:
    pods = tuple(pods)
    labelled = sum(revision_of(one) == stateful_set["status"]["updateRevision"] for one in pods)
    stateful_set = evolve(stateful_set, ("status", "updatedReplicas"), labelled)
    known = {"r1": template(), "r2": stateful_set["spec"]["template"], **revisions}
    return WorkloadView(stateful_set, pods, known, (), tuple(budgets), answers)


def replica_set(name: str, made_from: Object, replicas: int = 3, created: str = "1") -> Object:
    labels = {"app": "db", "pod-template-hash": name}
    return {
        "kind": "ReplicaSet",
        "metadata": {"name": name, "uid": name, "creationTimestamp": created},
        "spec": {
            "replicas": replicas,
            "template": evolve(made_from, ("metadata", "labels"), labels),
        },
        "status": {"replicas": replicas},
    }


def deployment_view(
    deployment: Object, sets: Iterable[Object], pods: Iterable[Object], **more: Any
) -> WorkloadView:
    view = WorkloadView(deployment, tuple(pods), {}, tuple(sets))
    return msgspec.structs.replace(view, **more)


def budget(allowed: int) -> Object:
    return {
        "metadata": {"name": "b", "namespace": "default", "generation": 1},
        "spec": {"selector": {}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
    }


# Plans in short

SMALL, LARGE = template("1"), template("2")
RESTART = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}
SMALL_R, LARGE_R = template("1", **RESTART), template("2", **RESTART)
QOS = evolve(SMALL, ("spec", "containers", 0, "resources", "limits", "cpu"), "2")
"""Of another QoS class than SMALL: no pod can be resized to it."""
PARTITION = ("spec", "updateStrategy", "rollingUpdate", "partition")
ANNOTATIONS = ("metadata", "annotations")


def words(plan: WorkloadPlan) -> list[str]:
    """Its actions in short; reports are left out."""
    return [word for action in plan.actions if (word := _word(action))]


def _word(action: object) -> str:  # noqa: PLR0911 - a table
    match action:
        case ResizePod(pod=about):
            return f"resize {name_of(about)}"
        case AdjustPod(pod=about, patch=patch):
            label = lookup(patch, "metadata", "labels", "controller-revision-hash")
            return f"{f'label {label}' if label else 'adjust'} {name_of(about)}"
        case EvictPod(pod=about):
            return f"evict {name_of(about)}"
        case SetReplicaSetTemplate(replica_set=about):
            return f"template {name_of(about)}"
        case DeleteReplicaSet(replica_set=about):
            return f"delete {name_of(about)}"
        case WriteWorkload(workload=written):
            return _held(written)
    return ""


def _held(written: Object) -> str:
    if HELD not in written["metadata"]["annotations"]:
        return "release"
    where = lookup(written, *PARTITION)
    return "hold" if where is None else f"hold at {where}"


def status_of(plan: WorkloadPlan) -> Any:
    for action in plan.actions:
        match action:
            case ReportStatus(status=text):
                return json.loads(text)
            case WriteWorkload(workload=written):
                return json.loads(lookup(written, *ANNOTATIONS, RESIZE_STATUS))
    return None


def three(*kinds: str, target: Object = LARGE, own: Object = SMALL) -> list[Object]:
    """db-0, db-1 and db-2, each as a word says."""
    made = {
        "old": lambda name: pod(name, own, "r1"),
        "done": lambda name: pod(name, target, "r2"),
        "sized": lambda name: pod(name, target, "r1"),
        "asked": lambda name: requested(pod(name, own, "r1"), target),
        "applying": lambda name: requested(pod(name, own, "r1"), target, condition("InProgress")),
        "long": lambda name: requested(
            pod(name, own, "r1"), target, condition("InProgress", LONG_AGO)
        ),
        "deferred": lambda name: requested(pod(name, own, "r1"), target, condition("Deferred")),
        "late": lambda name: requested(
            pod(name, own, "r1"), target, condition("Deferred", LONG_AGO)
        ),
        "failing": lambda name: requested(pod(name, own, "r1"), target, condition("Error")),
        "failed": lambda name: requested(
            pod(name, own, "r1"), target, condition("Error", LONG_AGO)
        ),
        "never": lambda name: requested(pod(name, own, "r1"), target, condition("Infeasible")),
        "leaving": lambda name: pod(name, own, "r1", deletionTimestamp="now"),
        "unready": lambda name: pod(name, target, "r1", ready=False),
    }
    return [made[kind](f"db-{index}") for index, kind in enumerate(kinds) if kind != "missing"]


def resized(action: str = "InPlaceResizePreferred", **annotations: str) -> Object:
    return changed(workload("StatefulSet", action), LARGE, **annotations)


def plan(stateful_set: Object, pods: Iterable[Object], **more: Any) -> WorkloadPlan:
    return plan_workload(set_view(stateful_set, pods, **more), NOW)
