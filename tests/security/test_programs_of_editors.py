"""Where containers are processes of a machine and the API server answers other machines, only an
admin brings programs there (design 5.6), unless the admin says --trust-editors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system.api_server import ServerThread

pytestmark = pytest.mark.security

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("server"), trusts_editors=False).running() as opened:
        register(opened, "n1", "process://0.1.0")
        yield opened


def register(server: ServerThread, node: str, runtime: str) -> None:
    assert server.ask("admin", "POST", "/api/v1/nodes", {"metadata": {"name": node}})[0] == 201
    status = {"status": {"nodeInfo": {"containerRuntimeVersion": runtime}}}
    merge = "application/merge-patch+json"
    path = f"/api/v1/nodes/{node}/status"
    assert server.ask("admin", "PATCH", path, status, content_type=merge)[0] == 200


def pod(name: str, **spec: object) -> dict[str, object]:
    containers = [{"name": "app", "image": "localhost/a:1"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_an_editor_creates_no_container_there(server: ServerThread) -> None:
    code, status = server.ask("editor", "POST", PODS, pod("a"))
    assert code == 403
    assert "--trust-editors" in status["message"]
    assert server.ask("admin", "GET", f"{PODS}/a")[0] == 404


def test_nor_by_apply_or_on_a_node_that_is_not_there_yet(server: ServerThread) -> None:
    applied = {"apiVersion": "v1", "kind": "Pod", **pod("b")}
    path = f"{PODS}/b?fieldManager=me"
    assert (
        server.ask("editor", "PATCH", path, applied, content_type="application/apply-patch+yaml")[0]
        == 403
    )
    assert server.ask("editor", "POST", PODS, pod("b", nodeName="later"))[0] == 403


def test_nor_puts_another_image_or_a_command_into_an_admins_pod(server: ServerThread) -> None:
    assert server.ask("admin", "POST", PODS, pod("c", nodeName="n1"))[0] == 201
    image = {"spec": {"containers": [{"name": "app", "image": "localhost/mine:1"}]}}
    strategic = "application/strategic-merge-patch+json"
    assert server.ask("editor", "PATCH", f"{PODS}/c", image, content_type=strategic)[0] == 403
    for stream in ("exec", "attach"):
        code, status = server.ask("editor", "GET", f"{PODS}/c/{stream}?command=sh&stdout=1")
        assert (code, "only an admin" in status["message"]) == (403, True)
    for hook in ("pre-shrink", "post-resize", "post-resize.app"):
        command = {"metadata": {"annotations": {f"livesize.dev/{hook}": "id > /tmp/mine"}}}
        code, status = server.ask("editor", "PATCH", f"{PODS}/c", command, content_type=strategic)
        assert (code, "only an admin" in status["message"]) == (403, True)
    label = {"metadata": {"labels": {"a": "b"}, "annotations": {"livesize.dev/hook-timeout": "5s"}}}
    assert server.ask("editor", "PATCH", f"{PODS}/c", label, content_type=strategic)[0] == 200


def test_a_pod_from_before_is_not_bound_to_such_a_node_later(server: ServerThread) -> None:
    assert server.ask("admin", "DELETE", "/api/v1/nodes/n1")[0] == 200
    assert server.ask("editor", "POST", PODS, pod("d"))[0] == 201
    register(server, "n1", "process://0.1.0")
    register(server, "n2", "containerd://1.7")
    off = {"metadata": {"annotations": None}}
    merge = "application/merge-patch+json"
    assert server.ask("editor", "PATCH", f"{PODS}/d", off, content_type=merge)[0] == 403
    binding = {"metadata": {"name": "d"}, "target": {"kind": "Node", "name": "n1"}}
    assert server.ask("scheduler", "POST", f"{PODS}/d/binding", binding)[0] == 403
    binding["target"] = {"kind": "Node", "name": "n2"}
    assert server.ask("scheduler", "POST", f"{PODS}/d/binding", binding)[0] == 201


def test_an_editor_runs_containers_where_they_are_apart(server: ServerThread) -> None:
    assert server.ask("editor", "POST", PODS, pod("e", nodeName="n2"))[0] == 201


@pytest.mark.parametrize(
    ("who", "node", "refused"),
    [("editor", "n1", True), ("admin", "n1", False), ("editor", "n2", False)],
)
def test_ports_that_are_not_the_pods_own_are_not_forwarded(
    server: ServerThread, who: str, node: str, refused: bool
) -> None:
    """n1 gives its pods the machine's network, n2 one of their own."""
    made = server.ask("admin", "POST", PODS, pod(f"port-{who}-{node}", nodeName=node))
    assert made[0] == 201
    code, status = server.ask(who, "GET", f"{PODS}/port-{who}-{node}/portforward")
    assert (code == 403) is refused
    assert ("only an admin forwards" in status["message"]) is refused
