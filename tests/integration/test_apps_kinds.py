"""kubectl with stateful sets, deployments, replica sets and their revisions: what it writes, reads
and prints. No controller runs; the test writes what one would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.test_apiserver_kubectl import Cluster
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, evolve, lookup
from unit.api.kinds.workload_objects import claim_template, template, workload

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

MAP = {"memory": "RestartOnly", "cpu": "LiveResizeable"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("apps")) as running:
        yield running


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks for two replicas, and another grace in the template."""
    script = tmp_path / "editor"
    changes = "s/^  replicas: 1$/  replicas: 2/; s/PeriodSeconds: 30/PeriodSeconds: 9/"
    script.write_text(f'#!/bin/sh\nexec sed -i "{changes}" "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(script))


def read(cluster: Cluster, what: str) -> Any:
    return json.loads(cluster.kubectl("get", what, "-o", "json").stdout)


def rows(cluster: Cluster, *words: str) -> list[list[str]]:
    return [line.split() for line in cluster.kubectl("get", *words).stdout.splitlines()]


def told(cluster: Cluster, what: str, status: Object) -> None:
    """As a controller writes it."""
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", what, "--subresource=status", "--type=merge", "-p", patch)


def sized(limits: Object, **resources: Any) -> Object:
    container = {"name": "app", "image": "busybox:1", "resources": {"limits": limits, **resources}}
    return template(containers=[container])


def test_create_scale_and_columns_of_a_deployment(cluster: Cluster) -> None:
    made = cluster.kubectl("create", "deployment", "made", "--image=busybox:1", "--replicas=2")
    assert made.stdout == "deployment.apps/made created\n"
    spec = read(cluster, "deploy/made")["spec"]
    assert (spec["progressDeadlineSeconds"], spec["revisionHistoryLimit"]) == (600, 10)
    assert spec["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    cluster.kubectl("scale", "deploy/made", "--replicas=3")
    told(cluster, "deploy/made", {"replicas": 3, "readyReplicas": 2, "availableReplicas": 2})
    heads, row = rows(cluster, "deploy", "made", "-o", "wide")
    assert heads == [
        "NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR",
    ]  # fmt: skip
    assert row[:4] == ["made", "2/3", "0", "2"]
    assert row[5:] == ["busybox", "busybox:1", "app=made"]
    assert "deployment.apps/made" in cluster.kubectl("get", "all").stdout
    seen = read(cluster, "deploy/made")
    assert seen["metadata"]["generation"] == 2, "the status does not count"
    stale = ("scale", "deploy/made", "--current-replicas=1", "--replicas=4")
    assert "Expected replicas to be 1, was 3" in cluster.kubectl(*stale, fails=True).stderr
    view = "--raw=/apis/apps/v1/namespaces/default/deployments/made/scale"
    scale = json.loads(cluster.kubectl("get", view).stdout)
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 3})
    assert scale["status"] == {"replicas": 3, "selector": "app=made"}


def test_set_image_resources_and_env(cluster: Cluster) -> None:
    cluster.kubectl("create", "-f", "-", stdin=workload(DEPLOYMENTS, "set"))
    cluster.kubectl("set", "image", "deploy/set", "app=busybox:2")
    cluster.kubectl("set", "resources", "deploy/set", "--limits=cpu=200m,memory=64Mi")
    cluster.kubectl("set", "env", "deploy/set", "A=b")
    (container,) = read(cluster, "deploy/set")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "busybox:2"
    limits = {"cpu": "200m", "memory": "64Mi"}
    assert container["resources"] == {"limits": limits, "requests": limits}
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert read(cluster, "deploy/set")["metadata"]["generation"] == 4


def test_a_strategy_changes_by_apply(cluster: Cluster) -> None:
    """The default of one strategy does not stay beside another one (retainKeys)."""
    cluster.kubectl("apply", "-f", "-", stdin=workload(DEPLOYMENTS, "kept"))
    recreate = workload(DEPLOYMENTS, "kept", strategy={"type": "Recreate"})
    assert "configured" in cluster.kubectl("apply", "-f", "-", stdin=recreate).stdout
    assert read(cluster, "deploy/kept")["spec"]["strategy"] == {"type": "Recreate"}
    assert "unchanged" in cluster.kubectl("apply", "-f", "-", stdin=recreate).stdout
    other = evolve(recreate, ("spec", "selector"), {"matchLabels": {"app": "other"}})
    refused = cluster.kubectl("apply", "-f", "-", stdin=other, fails=True).stderr
    assert "spec.selector: Invalid value" in refused
    assert "field is immutable" in refused
    assert "`selector` does not match template `labels`" in refused


def test_apply_on_the_server_and_its_conflict(cluster: Cluster) -> None:
    applied = ("apply", "--server-side", "-f", "-")
    first = workload(STATEFUL_SETS, "owned", template=sized({"cpu": "1"}))
    cluster.kubectl(*applied, "--field-manager=ann", stdin=first)
    bigger = workload(STATEFUL_SETS, "owned", template=sized({"cpu": "2"}))
    refused = cluster.kubectl(*applied, "--field-manager=bob", stdin=bigger, fails=True)
    assert 'conflict with "ann"' in refused.stderr
    assert '.spec.template.spec.containers[name="app"].resources.limits.cpu' in refused.stderr
    cluster.kubectl(*applied, "--field-manager=bob", "--force-conflicts", stdin=bigger)
    limits = ("spec", "template", "spec", "containers", 0, "resources", "limits")
    assert lookup(read(cluster, "sts/owned"), *limits) == {"cpu": "2"}


def test_a_stateful_set_with_claims_and_policies(cluster: Cluster) -> None:
    pods = sized({"cpu": "1", "memory": "64Mi"}, resizePolicy=MAP)
    pods["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    made = workload(STATEFUL_SETS, "db", template=pods, volumeClaimTemplates=[claim_template()])
    made["metadata"]["annotations"] = {"resizeAction": "InPlaceResizePreferred"}
    cluster.kubectl("apply", "-f", "-", stdin=made)
    heads, row = rows(cluster, "sts", "db", "-o", "wide")
    assert heads == ["NAME", "READY", "AGE", "CONTAINERS", "IMAGES"]
    assert (row[:2], row[3:]) == (["db", "0/1"], ["app", "busybox:1"])
    bigger = [{"name": "app", "resources": {"limits": {"cpu": "2"}}}]
    patch = json.dumps({"spec": {"template": {"spec": {"containers": bigger}}}})
    cluster.kubectl("patch", "sts", "db", "-p", patch)
    cluster.kubectl("set", "resources", "sts/db", "--limits=memory=128Mi")
    (container,) = read(cluster, "sts/db")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "128Mi"}
    assert container["resources"]["resizePolicy"] == MAP, "kubectl does not know it, and keeps it"
    fixed = cluster.kubectl(
        "patch", "sts", "db", "-p", '{"spec":{"serviceName":"other"}}', fails=True
    )
    assert fixed.stderr.strip() == (
        'The StatefulSet "db" is invalid: spec: Forbidden: updates to statefulset spec for fields'
        " other than 'replicas', 'ordinals', 'template', 'updateStrategy',"
        " 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are"
        " forbidden"
    )
    refused = cluster.kubectl(
        "annotate", "sts", "db", "--overwrite", "resizeAction=Now", fails=True
    )
    assert 'metadata.annotations[resizeAction]: Unsupported value: "Now"' in refused.stderr
    never = '{"spec":{"template":{"spec":{"restartPolicy":"Never"}}}}'
    refused = cluster.kubectl("patch", "sts", "db", "-p", never, fails=True)
    assert "spec.template.spec.restartPolicy: Unsupported value" in refused.stderr


@pytest.mark.usefixtures("editor")
def test_edit_and_replace_beside_what_kubectl_does_not_know(cluster: Cluster) -> None:
    """A virtual machine and IBM's map stay in the template when something else is edited."""
    machine = {
        "resources": {"limits": {"cpu": "1", "memory": "512Mi"}},
        "kernel": {"image": "guest"},
    }
    vms = {"metadata": {"labels": {"app": "web"}}, "spec": {"virtualMachine": machine}}
    cluster.kubectl("apply", "-f", "-", stdin=workload(STATEFUL_SETS, "vms", template=vms))
    mapped = sized({"cpu": "1"}, resizePolicy=MAP)
    cluster.kubectl("apply", "-f", "-", stdin=workload(STATEFUL_SETS, "mapped", template=mapped))
    before = {name: read(cluster, f"sts/{name}")["spec"] for name in ("vms", "mapped")}
    for name, old in before.items():
        said = cluster.kubectl("edit", f"sts/{name}").stdout
        assert said == f"statefulset.apps/{name} edited\n"
        edited = evolve(old, ("template", "spec", "terminationGracePeriodSeconds"), 9)
        assert read(cluster, f"sts/{name}")["spec"] == {**edited, "replicas": 2}
    # A manifest without the maxima means those that there are.
    machine["resources"]["limits"]["memory"] = "1Gi"
    cluster.kubectl("replace", "-f", "-", stdin=workload(STATEFUL_SETS, "vms", template=vms))
    now = read(cluster, "sts/vms")["spec"]["template"]["spec"]
    then = before["vms"]["template"]["spec"]
    assert now["virtualMachine"]["resources"]["limits"]["memory"] == "1Gi"
    assert now["overhead"] == then["overhead"]
    assert without_sizes(now["virtualMachine"]) == without_sizes(then["virtualMachine"])


def without_sizes(machine: Object) -> Object:
    return {key: value for key, value in machine.items() if key != "resources"}


def replica_set(cluster: Cluster, deployment: str, revision: int) -> None:
    """As the deployment's controller makes it, which also notes the newest on the deployment."""
    newest = f"deployment.kubernetes.io/revision={revision}"
    cluster.kubectl("annotate", "--overwrite", f"deploy/{deployment}", newest)
    owner = read(cluster, f"deploy/{deployment}")
    labels = {"app": "web", "pod-template-hash": f"h{revision}"}
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment,
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    pods = evolve(owner["spec"]["template"], ("metadata", "labels"), labels)
    made = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{deployment}-h{revision}",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": [reference],
        },
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": pods},
    }
    cluster.kubectl("create", "-f", "-", stdin=made)


def test_rollouts_of_a_deployment(cluster: Cluster) -> None:
    cluster.kubectl("create", "-f", "-", stdin=workload(DEPLOYMENTS, "roll"))
    replica_set(cluster, "roll", 1)
    cluster.kubectl("set", "image", "deploy/roll", "app=busybox:2")
    replica_set(cluster, "roll", 2)
    heads, row = rows(cluster, "rs", "roll-h2", "-o", "wide")
    assert heads == [
        "NAME", "DESIRED", "CURRENT", "READY", "AGE", "CONTAINERS", "IMAGES", "SELECTOR",
    ]  # fmt: skip
    assert row[:4] == ["roll-h2", "1", "0", "0"]
    assert row[5:] == ["app", "busybox:2", "app=web,pod-template-hash=h2"]
    history = cluster.kubectl("rollout", "history", "deploy/roll").stdout
    assert [line.split()[0] for line in history.splitlines() if line[:1].isdigit()] == ["1", "2"]
    one = cluster.kubectl("rollout", "history", "deploy/roll", "--revision=1").stdout
    assert "busybox:1" in one
    cluster.kubectl("rollout", "pause", "deploy/roll")
    assert read(cluster, "deploy/roll")["spec"]["paused"] is True
    cluster.kubectl("rollout", "resume", "deploy/roll")
    assert "paused" not in read(cluster, "deploy/roll")["spec"]
    cluster.kubectl("rollout", "restart", "deploy/roll")
    restarted = ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")
    assert lookup(read(cluster, "deploy/roll"), *restarted)
    undone = cluster.kubectl("rollout", "undo", "deploy/roll", "--to-revision=1").stdout
    assert undone == "deployment.apps/roll rolled back\n"
    pods = read(cluster, "deploy/roll")["spec"]["template"]
    assert pods["spec"]["containers"][0]["image"] == "busybox:1"
    assert not lookup(pods, "metadata", "annotations")
    generation = read(cluster, "deploy/roll")["metadata"]["generation"]
    done = {"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1}
    told(cluster, "deploy/roll", {**done, "readyReplicas": 1, "availableReplicas": 1})
    said = cluster.kubectl("rollout", "status", "deploy/roll", "--timeout=10s").stdout
    assert said == 'deployment "roll" successfully rolled out\n'


def revision(cluster: Cluster, name: str, number: int) -> None:
    """As the stateful set's controller makes it: the template, to be patched in as a whole."""
    owner = read(cluster, f"sts/{name}")
    data = {"spec": {"template": {"$patch": "replace", **owner["spec"]["template"]}}}
    reference = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": name,
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        "name": f"{name}-h{number}",
        "ownerReferences": [reference],
        "labels": {"app": "web"},
    }
    made = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata}
    cluster.kubectl("create", "-f", "-", stdin={**made, "data": data, "revision": number})


def test_rollouts_of_a_stateful_set(cluster: Cluster) -> None:
    first = sized({"cpu": "1"}, resizePolicy=MAP)
    cluster.kubectl("create", "-f", "-", stdin=workload(STATEFUL_SETS, "turn", template=first))
    revision(cluster, "turn", 1)
    old = read(cluster, "sts/turn")["spec"]["template"]
    cluster.kubectl("set", "image", "sts/turn", "app=busybox:2")
    revision(cluster, "turn", 2)
    heads, row = rows(cluster, "controllerrevisions", "turn-h2")
    assert heads == ["NAME", "CONTROLLER", "REVISION", "AGE"]
    assert row[:3] == ["turn-h2", "statefulset.apps/turn", "2"]
    history = cluster.kubectl("rollout", "history", "sts/turn").stdout
    assert [line.split()[0] for line in history.splitlines() if line[:1].isdigit()] == ["1", "2"]
    cluster.kubectl("rollout", "undo", "sts/turn", "--to-revision=1")
    assert read(cluster, "sts/turn")["spec"]["template"] == old, "with the policies of then"
    data = '{"data":{"spec":null}}'
    refused = cluster.kubectl(
        "patch", "controllerrevision", "turn-h1", "--type=merge", "-p", data, fails=True
    )
    assert "data: Invalid value: {}: field is immutable" in refused.stderr
    cluster.kubectl("rollout", "restart", "sts/turn")
    told(cluster, "sts/turn", {
        "observedGeneration": read(cluster, "sts/turn")["metadata"]["generation"],
        "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "currentReplicas": 1,
        "currentRevision": "turn-h3", "updateRevision": "turn-h3",
    })  # fmt: skip
    said = cluster.kubectl("rollout", "status", "sts/turn", "--timeout=10s").stdout
    assert said == "partitioned roll out complete: 1 new pods have been updated...\n"


def test_explain_discovery_and_what_is_not_there(cluster: Cluster) -> None:
    explained = cluster.kubectl("explain", "sts.spec.updateStrategy").stdout
    assert "StatefulSetUpdateStrategy" in explained
    assert "How pods get a changed template." in explained
    assert "rollingUpdate" in explained
    listed = cluster.kubectl("api-resources", "--api-group=apps", "--no-headers").stdout
    assert [line.split() for line in listed.splitlines()] == [
        ["controllerrevisions", "apps/v1", "true", "ControllerRevision"],
        ["deployments", "deploy", "apps/v1", "true", "Deployment"],
        ["replicasets", "rs", "apps/v1", "true", "ReplicaSet"],
        ["statefulsets", "sts", "apps/v1", "true", "StatefulSet"],
    ]
    daemons = {**workload(DEPLOYMENTS, "daemons"), "kind": "DaemonSet"}
    refused = cluster.kubectl("create", "-f", "-", stdin=daemons, fails=True).stderr
    assert "`kubectl api-resources` lists the kinds that it serves" in refused
    told_apart = cluster.kubectl("create", "--validate=false", "-f", "-", stdin=daemons, fails=True)
    assert 'no matches for kind "DaemonSet" in version "apps/v1"' in told_apart.stderr
    nothing = cluster.kubectl("get", "daemonsets", fails=True).stderr
    assert nothing == 'error: the server doesn\'t have a resource type "daemonsets"\n'


def test_quotas_count_workloads(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "small")
    cluster.kubectl("create", "quota", "one", "--hard=count/deployments.apps=1", "-n", "small")
    create = ("create", "deployment", "--image=busybox:1", "-n", "small")
    cluster.kubectl(*create, "first")
    assert "exceeded quota: one" in cluster.kubectl(*create, "second", fails=True).stderr
