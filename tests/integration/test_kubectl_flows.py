"""kubectl 1.32, flow by flow, with the kubeconfig of a real `livesize up`.

The flows that other files here do not show: those of a real container are in test_kubectl.py and
test_kubectl_apply.py, quotas and owners in test_kubectl_kinds.py, identities in
test_kubectl_auth.py.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
import yaml

from system.up import IMAGE, Up

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

SIZE = {"cpu": "200m", "memory": "64Mi"}


@pytest.fixture(scope="module")
def up(fake_up: Up) -> Up:
    return fake_up


def manifest(name: str, **metadata: Any) -> dict[str, Any]:
    resources = {"requests": SIZE, "limits": SIZE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "containers": [{"name": "app", "image": IMAGE, "resources": resources}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def say(up: Up, *words: str, stdin: Any = None) -> str:
    """What kubectl prints; it must succeed."""
    return up.kubectl(*words, stdin=None if stdin is None else json.dumps(stdin)).stdout


def refusal(up: Up, *words: str, stdin: Any = None) -> str:
    done = up.kubectl(*words, check=False, stdin=None if stdin is None else json.dumps(stdin))
    assert done.returncode == 1, done.stdout
    return done.stderr


@pytest.fixture(scope="module")
def web(up: Up) -> str:
    say(up, "apply", "-f", "-", stdin=manifest("web", labels={"tier": "front"}))
    say(up, "wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    return "web"


def limit_of(up: Up, resource: str) -> str:
    path = f"jsonpath={{.status.containerStatuses[0].resources.limits.{resource}}}"
    return say(up, "get", "pod", "web", "-o", path)


# What is there


def test_cluster_info_and_versions(up: Up) -> None:
    server = yaml.safe_load(up.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    assert server in say(up, "cluster-info")
    assert "Server Version: v1." in say(up, "version")
    versions = say(up, "api-versions").split()
    assert {"v1", "coordination.k8s.io/v1", "metrics.k8s.io/v1beta1", "policy/v1"} <= set(versions)


def test_api_resources_with_their_short_names_and_verbs(up: Up) -> None:
    rows = [line.split() for line in say(up, "api-resources", "--no-headers").splitlines()]
    assert ["pods", "po", "v1", "true", "Pod"] in rows
    assert ["pods", "metrics.k8s.io/v1beta1", "true", "PodMetrics"] in rows
    names = say(up, "api-resources", "--verbs=list,watch", "--namespaced", "-o", "name").split()
    assert "pods" in names
    assert "nodes" not in names
    assert "pods.metrics.k8s.io" not in names


def test_explain_by_both_documents(up: Up) -> None:
    new = say(up, "explain", "pod.spec.containers.resizePolicy")
    old = say(up, "explain", "--output=plaintext-openapiv2", "pod.spec.containers.resizePolicy")
    for text in (new, old):
        assert "resourceName" in text
        assert "restartPolicy" in text


# Reading


def test_every_output_of_get(up: Up, web: str) -> None:
    get = ("get", "pod", web, "-o")
    assert json.loads(say(up, *get, "json"))["metadata"]["name"] == web
    assert yaml.safe_load(say(up, *get, "yaml"))["kind"] == "Pod"
    assert say(up, *get, "name").strip() == "pod/web"
    assert say(up, *get, "jsonpath={.spec.containers[*].name}") == "app"
    columns = "custom-columns=NAME:.metadata.name,CPU:.spec.containers[0].resources.limits.cpu"
    head, row = say(up, *get, columns).splitlines()
    assert (head.split(), row.split()) == (["NAME", "CPU"], ["web", "200m"])
    head, row = say(up, *get, "wide").splitlines()
    assert {"DESIRED", "ALLOCATED", "ACTUAL"} <= set(head.split())
    assert row.count("cpu 200m/200m memory 64Mi/64Mi") == 3
    assert "web" in say(up, "get", "pod", web, "--subresource=resize")
    assert say(up, *get, "go-template={{.status.qosClass}}") == "Guaranteed"


def test_selectors_and_sorting(up: Up, web: str) -> None:
    name = ("-o", "name")
    fields = "--field-selector=status.phase=Running,metadata.name!=other"
    assert say(up, "get", "pods", "-l", "tier in (front,back)", fields, *name) == "pod/web\n"
    assert say(up, "get", "pods", "-l", "!tier", *name) == ""
    assert say(up, "get", "pods", "-A", "--sort-by=.metadata.name", "--show-labels") != ""
    everything = say(up, "get", "all", *name).split()
    assert {"pod/web", "service/kubernetes"} <= set(everything)
    assert "not supported" in refusal(up, "get", "pods", "--field-selector=spec.colour=red")


def test_events_in_both_tables(up: Up, web: str) -> None:
    up.wait_until(lambda: "Started" in say(up, "events", "--for=pod/web"), "an event is there")
    head = say(up, "get", "events", "--field-selector=involvedObject.name=web").splitlines()[0]
    assert head.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]


def test_wait_for_a_jsonpath(up: Up, web: str) -> None:
    phase = ("wait", "--for=jsonpath={.status.phase}=Running", "pod/web", "--timeout=20s")
    assert "condition met" in say(up, *phase)
    never = ("wait", "--for=jsonpath={.status.phase}=Never", "pod/web", "--timeout=100ms")
    assert "timed out" in refusal(up, *never)


# Writing


def test_labels_and_annotations_come_and_go(up: Up, web: str) -> None:
    assert "labeled" in say(up, "label", "pod", web, "side=left")
    assert "already has a value" in refusal(up, "label", "pod", web, "side=right")
    assert "labeled" in say(up, "label", "pod", web, "side=right", "--overwrite")
    assert "unlabeled" in say(up, "label", "pod", web, "side-")
    assert "annotated" in say(up, "annotate", "pod", web, "why=because")
    assert "annotated" in say(up, "annotate", "pod", web, "why-")
    metadata = json.loads(say(up, "get", "pod", web, "-o", "json"))["metadata"]
    assert metadata["labels"] == {"tier": "front"}
    assert "why" not in metadata.get("annotations", {})


def cpu_patch(kind: str, cpu: str) -> str:
    if kind == "json":
        place = "/spec/containers/0/resources"
        sides = ("requests", "limits")
        return json.dumps(
            [{"op": "replace", "path": f"{place}/{side}/cpu", "value": cpu} for side in sides]
        )
    size = {**SIZE, "cpu": cpu}
    container: dict[str, Any] = {"name": "app", "resources": {"requests": size, "limits": size}}
    if kind == "merge":  # which replaces the list, so that everything has to be there
        container["image"] = IMAGE
    return json.dumps({"spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("kind", "cpu", "endpoint"),
    [
        ("strategic", "210m", []),
        ("json", "220m", []),
        ("merge", "230m", ["--subresource=resize"]),
    ],
)
def test_every_type_of_patch_resizes(
    up: Up, web: str, kind: str, cpu: str, endpoint: list[str]
) -> None:
    patch = cpu_patch(kind, cpu)
    assert "patched" in say(up, "patch", "pod", web, *endpoint, "--type", kind, "--patch", patch)
    up.wait_until(lambda: limit_of(up, "cpu") == cpu, "it has happened")


def test_patch_of_the_status(up: Up, web: str) -> None:
    words = ("patch", "pod", web, "--subresource=status", "--type=merge", "--patch")
    said = say(up, *words, '{"status":{"message":"looked at"}}', "-o", "jsonpath={.status.message}")
    assert said == "looked at", "until the node says again how it is"


def test_set_resources(up: Up, web: str) -> None:
    """IBM: kubectl set, patch, apply and edit all work for it."""
    sizes = ("--limits=cpu=240m,memory=64Mi", "--requests=cpu=240m,memory=64Mi")
    assert "resource requirements updated" in say(up, "set", "resources", "pod", web, *sizes)
    up.wait_until(lambda: limit_of(up, "cpu") == "240m", "it has happened")


def test_dry_run_on_the_server_changes_nothing(up: Up, web: str) -> None:
    before = say(up, "get", "pod", web, "-o", "jsonpath={.metadata.resourceVersion}")
    dry = "--dry-run=server"
    assert "(server dry run)" in say(up, "label", "pod", web, "dry=run", dry)
    patched = say(up, "patch", "pod", web, dry, "--patch", cpu_patch("strategic", "300m"))
    assert "patched" in patched
    assert "created (server dry run)" in say(up, "create", "-f", "-", dry, stdin=manifest("dry"))
    assert "(server dry run)" in say(up, "delete", "pod", web, dry)
    assert "created (server dry run)" in say(up, "create", "namespace", "dry", dry)
    assert say(up, "get", "pod", web, "-o", "jsonpath={.metadata.resourceVersion}") == before
    assert "NotFound" in refusal(up, "get", "ns/dry")


def test_run_replace_and_delete(up: Up) -> None:
    assert "created" in say(up, "run", "quick", f"--image={IMAGE}", "--labels=app=quick")
    pod = json.loads(say(up, "get", "pod", "quick", "-o", "json"))
    pod["metadata"]["labels"]["new"] = "1"
    pod["metadata"].pop("resourceVersion")
    assert "replaced" in say(up, "replace", "-f", "-", stdin=pod)
    stale = {**pod, "metadata": {**pod["metadata"], "resourceVersion": "1"}}
    assert "the object has been modified" in refusal(up, "replace", "-f", "-", stdin=stale)
    assert say(up, "get", "pod", "quick", "-o", "jsonpath={.metadata.labels.new}") == "1"
    assert "deleted" in say(up, "delete", "pods", "-l", "app=quick", "--now")
    assert "replaced" in say(up, "replace", "--force", "-f", "-", stdin=manifest("forced"))
    assert "deleted" in say(up, "delete", "pod", "forced", "--force", "--grace-period=0")


def test_delete_waits_for_finalizers(up: Up) -> None:
    held = manifest("held", finalizers=["example.com/hold"])
    say(up, "create", "-f", "-", stdin=held)
    say(up, "wait", "--for=condition=Ready", "pod/held", "--timeout=20s")
    command = ["kubectl", "--kubeconfig", str(up.kubeconfig), "delete", "pod", "held"]
    command += ["--cache-dir", str(up.directory / "kubectl-cache")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as deleting:
        path = "jsonpath={.metadata.deletionTimestamp}"
        up.wait_until(lambda: say(up, "get", "pod", "held", "-o", path), "it is marked")
        time.sleep(0.2)
        assert deleting.poll() is None, "it waits"
        freed = '{"metadata":{"finalizers":null}}'
        say(up, "patch", "pod", "held", "--type=merge", "--patch", freed)
        said, _ = deleting.communicate(timeout=20)
    assert (deleting.returncode, 'pod "held" deleted' in said) == (0, True)
    assert "NotFound" in refusal(up, "get", "pod", "held")


CREATED = [
    (["quota", "small", "--hard=pods=9,requests.cpu=9"], "spec.hard", {"pods": "9",
     "requests.cpu": "9"}),
    (["configmap", "settings", "--from-literal=a=1"], "data", {"a": "1"}),
    (["secret", "generic", "keys", "--from-literal=a=1"], "data", {"a": "MQ=="}),
    (["serviceaccount", "robot"], "metadata.name", "robot"),
    (["service", "clusterip", "front", "--tcp=80:8080"], "spec.ports[0].targetPort", 8080),
    (["poddisruptionbudget", "some", "--selector=a=b", "--min-available=1"],
     "spec.minAvailable", 1),
    (["priorityclass", "high", "--value=1000"], "value", 1000),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "path", "value"), CREATED, ids=[words[0] for words, _, _ in CREATED]
)
def test_create_of_each_kind(up: Up, words: list[str], path: str, value: Any) -> None:
    """kubectl sends these in protobuf, and does not try anything else."""
    assert "created" in say(up, "create", *words)
    name = f"{words[0]}/{words[-2] if words[-1].startswith('--') else words[-1]}"
    if words[0] == "poddisruptionbudget":
        name = "pdb/some"
    shown: Any = json.loads(say(up, "get", name, "-o", "json"))
    for step in path.replace("[0]", ".0").split("."):
        shown = shown[int(step)] if step.isdigit() else shown[step]
    if path == "spec.hard":
        shown = dict(shown)
    assert shown == value
    assert "deleted" in say(up, "delete", name)


# Nodes


def test_cordon_keeps_pods_away_until_uncordon(up: Up) -> None:
    assert "cordoned" in say(up, "cordon", up.node)
    assert "SchedulingDisabled" in say(up, "get", "nodes")
    say(up, "create", "-f", "-", stdin=manifest("patient"))
    where = "jsonpath={.spec.nodeName}"
    unscheduled = "--for=condition=PodScheduled=False"
    say(up, "wait", unscheduled, "pod/patient", "--timeout=20s")
    assert say(up, "get", "pod", "patient", "-o", where) == ""
    assert "uncordoned" in say(up, "uncordon", up.node)
    say(up, "wait", "--for=condition=Ready", "pod/patient", "--timeout=20s")
    assert say(up, "get", "pod", "patient", "-o", where) == up.node
    say(up, "delete", "pod", "patient")


def test_drain_says_what_it_would_evict(up: Up, web: str) -> None:
    drained = up.kubectl("drain", up.node, "--dry-run=client", "--force", check=False)
    assert "web" in drained.stdout + drained.stderr
    say(up, "uncordon", up.node)


def test_taint_and_describe_of_a_node(up: Up, web: str) -> None:
    assert "tainted" in say(up, "taint", "node", up.node, "full=yes:NoSchedule")
    described = say(up, "describe", "node", up.node)
    assert "full=yes:NoSchedule" in described
    assert "web" in described
    assert "untainted" in say(up, "taint", "node", up.node, "full-")


def test_describe_node_counts_what_is_allocated(up: Up) -> None:
    """ARK: "all components will use Pod's Spec.Containers[i].ResourcesAllocated when computing
    resources used by Pods". kubectl computes by itself: what can never fit is not in it."""
    say(up, "apply", "-f", "-", stdin=manifest("greedy"))
    say(up, "wait", "--for=condition=Ready", "pod/greedy", "--timeout=20s")
    before = requests_counted(up)
    up.livesize("resize", "pod/greedy", "--cpu", "64")
    up.wait_until(lambda: up.pod("greedy")["status"].get("resize") == "Infeasible", "refused")
    assert requests_counted(up) == before
    up.livesize("resize", "pod/greedy", "--cpu", "300m", "--wait")
    assert requests_counted(up) != before
    up.delete_pod("greedy")


def requests_counted(up: Up) -> str:
    """The CPU requests of all pods, as kubectl adds them up."""
    _, _, allocated = say(up, "describe", "node", up.node).partition("Allocated resources:")
    [row] = [line for line in allocated.splitlines() if line.split()[:1] == ["cpu"]]
    return row.split()[1]


# Last: by now the node has measured for a while


def test_top(up: Up, web: str) -> None:
    for what in (("node",), ("pod", web)):
        up.wait_until(
            lambda what=what: up.kubectl("top", *what, check=False).returncode == 0,
            f"the {what[0]} has been measured",
        )
    head, node = say(up, "top", "node").splitlines()
    assert head.split() == ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]
    assert node.split()[0] == up.node
    head, pod = say(up, "top", "pod", web).splitlines()
    assert head.split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert pod.split()[0] == web
    assert pod.split()[2].endswith("Mi")
    by_container = say(up, "top", "pod", web, "--containers", "--no-headers").split()
    assert by_container[:2] == ["web", "app"]
    assert "web" in say(up, "get", "pods.metrics.k8s.io")
