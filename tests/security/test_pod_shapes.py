"""What an editor may not ask of a pod is refused, in whatever shape, and never answered 500."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from system.api_server import ServerThread

pytestmark = pytest.mark.security

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("server")).running() as opened:
        free = {"pod-security.kubernetes.io/enforce": "privileged"}
        labels = {"metadata": {"labels": free}}
        merge = "application/merge-patch+json"
        path = "/api/v1/namespaces/default"
        assert opened.ask("editor", "PATCH", path, labels, content_type=merge)[0] == 200
        assert opened.ask("editor", "POST", PODS, pod(name="good"))[0] == 201
        yield opened


def pod(name: str = "bad", container: Any = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "localhost/a:1", **(container or {})}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def secured(**context: Any) -> dict[str, Any]:
    return pod(container={"securityContext": context})


def mounting(**mount: Any) -> dict[str, Any]:
    mounts = [{"name": "v", "mountPath": "/m", **mount}]
    return pod(container={"volumeMounts": mounts}, volumes=[{"name": "v", "emptyDir": {}}])


PRIVILEGED = {
    "privileged": secured(privileged=True),
    "host network": pod(hostNetwork=True),
    "host pids": pod(hostPID=True),
    "host ipc": pod(hostIPC=True),
    "host path": pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "host port": pod(container={"ports": [{"containerPort": 80, "hostPort": 80}]}),
    "capability": secured(capabilities={"add": ["SYS_ADMIN"]}),
    "all capabilities": secured(capabilities={"add": ["ALL"]}),
    "proc mount": secured(procMount="Unmasked"),
    "no seccomp": secured(seccompProfile={"type": "Unconfined"}),
    "no seccomp, pod": pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "no apparmor": secured(appArmorProfile={"type": "Unconfined"}),
    "selinux": secured(seLinuxOptions={"type": "spc_t"}),
    "sysctl": pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "host process": secured(windowsOptions={"hostProcess": True}),
    "init container": pod(
        initContainers=[
            {"name": "i", "image": "localhost/a:1", "securityContext": {"privileged": True}}
        ]
    ),
    "host probe": pod(
        container={"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}
    ),
    "host hook": pod(
        container={"lifecycle": {"postStart": {"tcpSocket": {"host": "10.0.0.1", "port": 22}}}}
    ),
    "kernel of the host": {
        "metadata": {"name": "bad"},
        "spec": {
            "virtualMachine": {
                "kernel": {"image": "/etc/shadow"},
                "resources": {"limits": {"cpu": "1", "memory": "512Mi"}},
            }
        },
    },
}


@pytest.mark.parametrize("shape", PRIVILEGED)
def test_the_baseline_holds_though_the_namespace_says_otherwise(
    server: ServerThread, shape: str
) -> None:
    body = PRIVILEGED[shape]
    applied = {"apiVersion": "v1", "kind": "Pod", **body}
    for code, _ in (
        server.ask("editor", "POST", PODS, body),
        server.ask("editor", "POST", f"{PODS}?dryRun=All", body),
        server.ask(
            "editor",
            "PATCH",
            f"{PODS}/bad?fieldManager=me&force=true",
            applied,
            content_type="application/apply-patch+yaml",
        ),
    ):
        assert code in (403, 422)
    assert server.ask("admin", "GET", f"{PODS}/bad")[0] == 404


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"hostNetwork": True}},
        {"spec": {"containers": [{"name": "a", "securityContext": {"privileged": True}}]}},
        {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
        {"spec": {"ephemeralContainers": [{"name": "e", "image": "localhost/a:1"}]}},
        {"spec": {"nodeName": "n1"}},
        {"spec": {"serviceAccountName": "other"}},
        {"spec": {"containers": [{"name": "b", "image": "localhost/a:1"}]}},
        {"status": {"phase": "Succeeded"}},
        {"metadata": {"uid": "mine"}},
    ],
)
def test_nothing_of_it_comes_later(server: ServerThread, change: Any) -> None:
    before = server.ask("admin", "GET", f"{PODS}/good")[1]
    code, _ = server.ask("editor", "PATCH", f"{PODS}/good", change, content_type=STRATEGIC)
    after = server.ask("admin", "GET", f"{PODS}/good")[1]
    assert code in (400, 403, 409, 422) or after == before
    assert after["spec"] == before["spec"]
    assert after["status"].get("phase") == before["status"].get("phase")


@pytest.mark.parametrize(
    "body",
    [
        mounting(subPath="../../etc"),
        mounting(subPath="a/../../b"),
        mounting(subPath="/etc"),
        mounting(subPath=".."),
        mounting(mountPath="/a/../../etc"),
        mounting(mountPath="a:b"),
        pod(
            volumes=[
                {"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "../x"}]}}
            ]
        ),
        pod(
            volumes=[
                {
                    "name": "v",
                    "secret": {"secretName": "s", "items": [{"key": "k", "path": "/etc/x"}]},
                }
            ]
        ),
        pod(
            volumes=[
                {
                    "name": "v",
                    "downwardAPI": {
                        "items": [{"path": "../x", "fieldRef": {"fieldPath": "metadata.name"}}]
                    },
                }
            ]
        ),
        pod(container={"name": "../../x"}),
        pod(container={"name": "a/b"}),
        pod(name="../x"),
        pod(name="a/b"),
        pod(volumes=[{"name": "../v", "emptyDir": {}}]),
        pod(container={"image": "../../etc/passwd"}),
    ],
)
def test_no_path_leads_out(server: ServerThread, body: Any) -> None:
    code, status = server.ask("editor", "POST", PODS, body)
    if code == 201:  # a path that stays inside, and an image whose name is only looked up
        server.ask("admin", "DELETE", f"{PODS}/bad?gracePeriodSeconds=0")
    container = body["spec"]["containers"][0]
    inside = container.get("volumeMounts", [{}])[0].get("mountPath") == "/a/../../etc"
    assert code in (400, 422) or inside or ".." in container["image"], status


@pytest.mark.parametrize(
    "amount",
    [
        *("1e1000000", "9" * 10_000, "1E999", "-1", "-0.1", "nan", "inf", "0x10", "1_000"),
        *("1e", "e1", "1..0", "1.", ".", "", " ", "1 ", "1\n", "\uff11", "1Ki1", "1KB", "+-1"),
        *("1e-100000000", "0." + "0" * 100_000 + "1", "99999999999999999999Ei"),
        *(True, [], {}, -1, 1e300),
    ],
)
@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage"])
def test_no_amount_is_taken_for_what_it_is_not(
    server: ServerThread, resource: str, amount: Any
) -> None:
    body = pod("amounts", container={"resources": {"requests": {resource: amount}}})
    code, status = server.ask("editor", "POST", f"{PODS}?dryRun=All", body)
    if code == 201:  # a very small or very large one is rounded, and shown as what it is now
        shown = status["spec"]["containers"][0]["resources"]["requests"][resource]
        assert len(str(shown)) < 64
    else:
        assert code in (400, 403, 422), status


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        0,
        None,
        {},
        {"metadata": []},
        {"metadata": {"name": ["a"]}},
        {"metadata": {"name": "a"}, "spec": []},
        {"metadata": {"name": "a"}, "spec": {"containers": {}}},
        {"metadata": {"name": "a"}, "spec": {"containers": [None]}},
        {"metadata": {"name": "a"}, "spec": {"containers": [[]]}},
        {"metadata": {"name": "a" * 300}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        {"metadata": {"name": "a\x00b"}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        {"kind": "Secret", "metadata": {"name": "a"}},
        {"__proto__": {"admin": True}, "metadata": {"name": "a"}, "spec": {"containers": []}},
    ],
)
def test_no_shape_ends_in_an_error_of_the_server(server: ServerThread, body: Any) -> None:
    for who in ("editor", "admin"):
        assert 400 <= server.ask(who, "POST", PODS, body if body is not None else "null")[0] < 500
