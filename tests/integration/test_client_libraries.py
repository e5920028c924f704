"""Four client libraries against a real `livesize up`, over TLS, with the kubeconfig it writes.

Each promise is asked of each library: the official Python client, kubernetes_asyncio, lightkube
and the JavaScript client. None of them knows Livesize.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest

from clients.interface import JSON, MERGE, STRATEGIC, Change, Library, RefusedError, Tree
from clients.javascript_client import FOLDER
from livesize.api.usage import USAGE_ANNOTATION, NodeUsage, Usage, format_usage
from system.up import IMAGE, Up

pytestmark = pytest.mark.apiserver

# Imported when they are used: two of them take seconds.
LIBRARIES = {
    "kubernetes": "clients.official:Official",
    "kubernetes_asyncio": "clients.asynchronous:Asynchronous",
    "lightkube": "clients.light:Light",
    "client-node": "clients.javascript_client:JavaScript",
}
SIZE = {"cpu": "200m", "memory": "64Mi"}
BIGGER = {"requests": {"cpu": "300m"}, "limits": {"cpu": "300m"}}


@pytest.fixture(scope="module")
def up(fake_up: Up) -> Up:
    return fake_up


@pytest.fixture(scope="module", params=sorted(LIBRARIES))
def library(
    request: pytest.FixtureRequest, up: Up, not_run: Callable[[str], NoReturn]
) -> Iterator[Library]:
    if request.param == "client-node" and not can_run_javascript():
        not_run("needs node and npm, and then make setup")
    module, _, name = LIBRARIES[request.param].partition(":")
    opened: Library = getattr(importlib.import_module(module), name)(up.kubeconfig)
    with contextlib.closing(opened):
        yield opened


def can_run_javascript() -> bool:
    return shutil.which("node") is not None and (FOLDER / "node_modules").is_dir()


@pytest.fixture
def label(library: Library, request: pytest.FixtureRequest) -> Iterator[str]:
    """Tells this test's pods from others; they are deleted behind it."""
    text = f"case={request.node.originalname.replace('_', '-')[:60]}"
    yield text
    for name in library.list(text).names:
        library.delete(name)


def pod(name: str, label: str, *, runs: bool = False, **labels: str) -> Tree:
    """One that nobody schedules, so that it changes only when the test does something."""
    key, _, value = label.partition("=")
    resources = {"requests": SIZE, "limits": SIZE}
    spec: Tree = {"containers": [{"name": "app", "image": IMAGE, "resources": resources}]}
    if not runs:
        spec["schedulerName"] = "nobody"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {key: value, **labels}},
        "spec": {**spec, "terminationGracePeriodSeconds": 0},
    }


def test_what_is_created_is_read_back(library: Library, label: str) -> None:
    made = library.create(pod("made", label))
    assert made["metadata"]["generation"] == 1
    assert made["status"]["qosClass"] == "Guaranteed"
    assert "resizePolicy" not in made["spec"]["containers"][0]
    assert library.get("made") == made
    with pytest.raises(RefusedError) as again:
        library.create(pod("made", label))
    assert (again.value.code, again.value.reason) == (409, "AlreadyExists")
    library.delete("made")
    with pytest.raises(RefusedError) as gone:
        library.get("made")
    assert (gone.value.code, gone.value.reason) == (404, "NotFound")


def test_lists_are_selected_by_labels_and_fields(library: Library, label: str) -> None:
    for name, tier in (("sel-1", "front"), ("sel-2", "back"), ("sel-3", "front")):
        library.create(pod(name, label, tier=tier))
    assert library.list(label).names == ["sel-1", "sel-2", "sel-3"]
    assert library.list(f"{label},tier=front").names == ["sel-1", "sel-3"]
    assert library.list(label, "metadata.name=sel-2").names == ["sel-2"]
    assert library.list(f"{label},tier=front", "status.phase=Pending").names == ["sel-1", "sel-3"]
    assert library.list(label, "status.phase=Running").names == []


def test_pages_show_one_moment(library: Library, label: str) -> None:
    """What is written while somebody turns the pages is not on them."""
    for number in range(5):
        library.create(pod(f"page-{number}", label))
    names = library.paged(label, limit=2)
    seen = [next(names)]
    library.create(pod("page-9", label))
    library.delete("page-4")
    assert [*seen, *names] == [f"page-{number}" for number in range(5)]
    assert library.list(label).names == [*(f"page-{number}" for number in range(4)), "page-9"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (MERGE, {"metadata": {"labels": {"old": None, "new": "1"}}}),
        (STRATEGIC, {"metadata": {"labels": {"old": None, "new": "1"}}}),
        (
            JSON,
            [
                {"op": "test", "path": "/metadata/labels/old", "value": "1"},
                {"op": "move", "from": "/metadata/labels/old", "path": "/metadata/labels/new"},
            ],
        ),
    ],
    ids=["merge", "strategic", "json"],
)
def test_patches(library: Library, label: str, kind: str, body: Any) -> None:
    made = library.create(pod("patched", label, old="1"))
    patched = library.patch("patched", kind, body)
    assert "old" not in patched["metadata"]["labels"]
    assert patched["metadata"]["labels"]["new"] == "1"
    assert patched["spec"] == made["spec"]
    with pytest.raises(RefusedError) as refused:
        library.patch("patched", kind, wrong_patch(kind))
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert library.get("patched") == patched


def wrong_patch(kind: str) -> Any:
    """A name that a label cannot have."""
    if kind == JSON:
        return [{"op": "add", "path": "/metadata/labels/-", "value": "1"}]
    return {"metadata": {"labels": {"-": "1"}}}


def test_a_replacement_of_an_older_version_conflicts(library: Library, label: str) -> None:
    first = library.create(pod("replaced", label))
    library.patch("replaced", MERGE, {"metadata": {"labels": {"new": "1"}}})
    with pytest.raises(RefusedError) as stale:
        library.replace(first)
    assert (stale.value.code, stale.value.reason) == (409, "Conflict")
    newest = library.get("replaced")
    newest["metadata"]["labels"]["newer"] = "2"
    assert library.replace(newest)["metadata"]["labels"]["newer"] == "2"


SIZED = {"spec": {"containers": [{"name": "app", "resources": BIGGER}]}}
RESIZES: dict[str, tuple[str, Any]] = {
    "strategic": (STRATEGIC, SIZED),
    "json": (
        JSON,
        [
            {"op": "replace", "path": f"/spec/containers/0/resources/{side}/cpu", "value": "300m"}
            for side in ("requests", "limits")
        ],
    ),
}


@pytest.mark.parametrize("how", RESIZES)
def test_a_running_pod_is_resized_and_watched_until_it_has_happened(
    library: Library, label: str, how: str
) -> None:
    name = f"resized-{how}"
    made = library.create(pod(name, label, runs=True))
    version = follow(library, label, made["metadata"]["resourceVersion"], runs).version
    asked = library.resize(name, *RESIZES[how])
    assert asked["metadata"]["generation"] == 2
    assert asked["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "300m"

    def has_happened(change: Change) -> bool:
        status = change.pod["status"]
        conditions = {one["type"] for one in status["conditions"]}
        actual = status["containerStatuses"][0].get("resources", {})
        return (
            status.get("observedGeneration", 0) >= 2
            and not conditions & {"PodResizePending", "PodResizeInProgress"}
            and actual.get("limits", {}).get("cpu") == "300m"
        )

    done = follow(library, label, version, has_happened)
    assert done.pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] == "300m"
    assert done.pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_merge_patch_resizes_too(library: Library, label: str) -> None:
    """It replaces the list of containers, so all of the container is sent."""
    container = library.create(pod("merged", label))["spec"]["containers"][0]
    limits = {"cpu": "300m", "memory": "64Mi"}
    body = {"spec": {"containers": [{**container, "resources": {"limits": limits}}]}}
    resources = library.resize("merged", MERGE, body)["spec"]["containers"][0]["resources"]
    assert resources == {"requests": limits, "limits": limits}


def runs(change: Change) -> bool:
    return bool(change.pod["status"].get("phase") == "Running")


def follow(library: Library, label: str, version: str, holds: Callable[[Change], bool]) -> Change:
    with contextlib.closing(library.watch(label, version)) as changes:
        return next(change for change in changes if holds(change))


def test_a_watch_goes_on_where_it_stopped(library: Library, label: str) -> None:
    version = library.list(label).version
    library.create(pod("first", label))
    library.patch("first", MERGE, {"metadata": {"labels": {"new": "1"}}})
    with contextlib.closing(library.watch(label, version)) as changes:
        seen = [next(changes), next(changes)]
    assert [(one.type, one.name) for one in seen] == [("ADDED", "first"), ("MODIFIED", "first")]
    library.delete("first")
    library.create(pod("second", label))
    with contextlib.closing(library.watch(label, seen[0].version)) as changes:
        resumed = [next(changes) for _ in range(3)]
        library.create(pod("third", label))
        resumed.append(next(changes))
    assert [(one.type, one.name) for one in resumed] == [
        ("MODIFIED", "first"),
        ("DELETED", "first"),
        ("ADDED", "second"),
        ("ADDED", "third"),
    ]
    versions = [int(one.version) for one in (seen[0], *resumed)]
    assert versions == sorted(set(versions))
    assert resumed[0].version == seen[1].version


def test_a_version_that_is_too_old_is_gone_and_a_new_list_goes_on(
    library: Library, label: str
) -> None:
    library.create(pod("kept", label))
    with pytest.raises(RefusedError) as gone:
        follow(library, label, "1", lambda _: True)
    assert gone.value.code == 410
    listed = library.list(label)
    assert listed.names == ["kept"]
    library.create(pod("later", label))
    change = follow(library, label, listed.version, lambda _: True)
    assert (change.type, change.name) == ("ADDED", "later")
    by_itself = getattr(library, "informed", None)
    if by_itself is not None:  # the library does it too: after 410 it begins anew
        assert by_itself("later", label, "1") == ["kept", "later"]


def test_what_a_pod_uses(library: Library, label: str, up: Up) -> None:
    """As its node, played here by hand, says it with its heartbeat."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = library.create({**pod("measured", label), "spec": spec_on("by-hand")})
    usage = NodeUsage(at, None, {named["metadata"]["uid"]: {"app": Usage(250_000, 2**20, 10.0)}})
    annotations = {USAGE_ANNOTATION: format_usage(usage)}
    lease = {"metadata": {"name": "by-hand", "annotations": annotations}, "spec": {}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert up.request("POST", leases, lease)[0] == 201
    try:
        (metrics,) = library.pod_metrics()
        assert (metrics["kind"], metrics["metadata"]["name"]) == ("PodMetrics", "measured")
        assert metrics["containers"] == [
            {"name": "app", "usage": {"cpu": "250000n", "memory": "1024Ki"}}
        ]
    finally:
        up.request("DELETE", f"{leases}/by-hand")


def spec_on(node: str) -> Tree:
    spec: Tree = pod("any", "a=b")["spec"]
    return {**spec, "nodeName": node}


def test_a_client_that_knows_no_kinds_learns_them(up: Up) -> None:
    """The official client's dynamic one, which Ansible uses: all from discovery."""
    from kubernetes import config, dynamic

    api = config.new_client_from_config(str(up.kubeconfig))
    learned = dynamic.DynamicClient(api)
    pods = learned.resources.get(api_version="v1", kind="Pod")
    body = pod("learned", "case=learned")
    pods.create(body=body, namespace="default")
    applied = {**body, "metadata": {"name": "learned", "labels": {"applied": "1"}}}
    pods.server_side_apply(
        body=applied, name="learned", namespace="default", field_manager="me", force_conflicts=True
    )
    (found,) = pods.get(namespace="default", label_selector="case=learned,applied=1").items
    assert found.spec.containers[0].resources.limits.cpu == "200m"
    assert pods.resize.name == "pods/resize"
    kinds = {one.kind for one in learned.resources.search(group="metrics.k8s.io")}
    assert {"PodMetrics", "NodeMetrics"} <= kinds
    pods.delete(name="learned", namespace="default", body={"gracePeriodSeconds": 0})
    api.rest_client.pool_manager.clear()
