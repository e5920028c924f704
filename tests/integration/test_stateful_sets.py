"""kubectl 1.32 with a stateful set on `livesize up`: rolled out and back, scaled, orphaned."""

from __future__ import annotations

import json
from typing import Any

import pytest

from system.up import IMAGE, Up, container

pytestmark = [pytest.mark.workloads, pytest.mark.usefixtures("kubectl_1_32")]

STATUS = ("rollout", "status", "sts/web", "--timeout=60s")
OURS = ("-l", "app=web")


def manifest(replicas: int = 2) -> str:
    app = {
        "name": "app",
        "image": IMAGE,
        "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    size = {"resources": {"requests": {"storage": "1Mi"}}, "accessModes": ["ReadWriteOnce"]}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [app], "terminationGracePeriodSeconds": 0},
    }
    spec = {
        "replicas": replicas,
        "serviceName": "webs",
        "selector": {"matchLabels": {"app": "web"}},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": size}],
    }
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}}
    return json.dumps({**made, "spec": spec})


def say(up: Up, *words: str, stdin: str = "") -> str:
    return up.kubectl(*words, stdin=stdin).stdout if stdin else up.kubectl(*words).stdout


def names(up: Up, kind: str) -> list[str]:
    return say(up, "get", kind, *OURS, "-o", "jsonpath={.items[*].metadata.name}").split()


def pods(up: Up) -> dict[str, Any]:
    """The uid and the value of A of each."""
    items = json.loads(say(up, "get", "pods", *OURS, "-o", "json"))["items"]
    return {
        one["metadata"]["name"]: (
            one["metadata"]["uid"],
            (one["spec"]["containers"][0].get("env") or [{}])[0].get("value"),
        )
        for one in items
    }


def values(up: Up) -> list[Any]:
    return [value for _, (_, value) in sorted(pods(up).items())]


def test_the_life_of_a_stateful_set(fake_up: Up) -> None:
    up = fake_up
    say(up, "apply", "-f", "-", stdin=manifest())
    assert "roll out complete: 2 new pods" in say(up, *STATUS)
    heads, row = (line.split() for line in say(up, "get", "sts", "web").splitlines())
    assert (heads[:2], row[:2]) == (["NAME", "READY"], ["web", "2/2"])
    first = pods(up)
    assert sorted(first) == ["web-0", "web-1"]
    assert names(up, "pvc") == ["data-web-0", "data-web-1"]

    say(up, "set", "env", "sts/web", "A=b")
    say(up, *STATUS)
    assert values(up) == ["b", "b"]
    say(up, "rollout", "undo", "sts/web")
    say(up, *STATUS)
    assert values(up) == [None, None]
    history = say(up, "rollout", "history", "sts/web").split()
    assert [word for word in history if word.isdigit()] == ["2", "3"]

    patch = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}
    say(up, "patch", "sts", "web", "-p", json.dumps(patch))
    say(up, "set", "env", "sts/web", "A=c")
    assert "partitioned roll out complete: 1 new pods" in say(up, *STATUS)
    assert values(up) == [None, "c"]
    patch["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 0
    say(up, "patch", "sts", "web", "-p", json.dumps(patch))
    say(up, *STATUS)
    assert values(up) == ["c", "c"]
    before = pods(up)
    say(up, "rollout", "restart", "sts/web")
    say(up, *STATUS)
    assert not set(before.values()) & set(pods(up).values())

    say(up, "scale", "sts/web", "--replicas=3")
    say(up, *STATUS)
    assert names(up, "pods") == ["web-0", "web-1", "web-2"]
    say(up, "scale", "sts/web", "--replicas=1")
    up.wait_until(lambda: names(up, "pods") == ["web-0"], "the others are gone")
    assert names(up, "pvc") == ["data-web-0", "data-web-1", "data-web-2"]

    before = pods(up)
    assert before["web-0"] != first["web-0"]
    say(up, "delete", "sts", "web", "--cascade=orphan")
    assert pods(up) == before
    say(up, "apply", "-f", "-", stdin=manifest(1))
    say(up, *STATUS)
    adopted = "jsonpath={.metadata.ownerReferences[*].kind}"
    assert say(up, "get", "pod", "web-0", "-o", adopted) == "StatefulSet"
    told = say(up, "describe", "sts", "web")
    assert "create Pod web-0 in StatefulSet web successful" in told

    say(up, "delete", "sts", "web")
    up.wait_until(lambda: not pods(up), "its pods are gone")
    up.wait_until(lambda: not names(up, "controllerrevisions"), "its revisions are gone")
    assert len(names(up, "pvc")) == 3
    say(up, "delete", "pvc", *OURS)


def test_its_pods_find_each_other_by_name(up: Up) -> None:
    """The resolver in a real container says so, also of a pod that came later."""
    service = {"clusterIP": "None", "selector": {"app": "named"}}
    made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "names"}, "spec": service}
    say(up, "apply", "-f", "-", stdin=json.dumps(made))
    template = {
        "metadata": {"labels": {"app": "named"}},
        "spec": {
            "containers": [container("app", "50m", "16Mi")],
            "terminationGracePeriodSeconds": 0,
        },
    }
    spec = {
        "replicas": 1,
        "serviceName": "names",
        "selector": {"matchLabels": {"app": "named"}},
        "template": template,
    }
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "named"}}
    say(up, "apply", "-f", "-", stdin=json.dumps({**made, "spec": spec}))
    say(up, "rollout", "status", "sts/named", "--timeout=60s")
    inode = inside(up, "ls -i /etc/hosts")
    assert "bad address" in inside(up, "wget http://named-1.names:1")
    say(up, "scale", "sts/named", "--replicas=2")
    say(up, "rollout", "status", "sts/named", "--timeout=60s")
    for name in ("named-1", "named-1.names", "named-1.names.default.svc.cluster.local"):
        up.wait_until(
            lambda name=name: "bad address" not in inside(up, f"wget http://{name}:1"),
            f"{name} is known",
        )
        assert "refused" in inside(up, f"wget http://{name}:1")
    assert inside(up, "ls -i /etc/hosts") == inode
    assert inside(up, "hostname") == "named-0\n"
    say(up, "delete", "sts", "named")
    up.wait_until(lambda: not say(up, "get", "pods", "-l", "app=named", "-o", "name"), "all gone")
    say(up, "delete", "service", "names")


def inside(up: Up, command: str) -> str:
    """What a command in the first pod says, on both of its streams."""
    return up.kubectl("exec", "named-0", "--", "sh", "-c", f"{command} 2>&1", check=False).stdout
