"""An object that is dear to check is refused before it is checked; YAML is read beside the loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from livesize.api.entries import MAX_ENTRIES
from livesize.apiserver.http import bodies
from system.api_server import ServerThread

pytestmark = pytest.mark.security

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
YAML = "application/yaml"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("server")).running() as opened:
        yield opened


def pod(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "localhost/a:1"}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (pod(containers=[{"name": f"c{n}", "image": "a"} for n in range(20_000)]), 413, ""),
        (
            pod(containers=[{"name": f"c{n}", "image": "a"} for n in range(257)]),
            422,
            "spec.containers",
        ),
        (
            pod(initContainers=[{"name": f"c{n}", "image": "a"} for n in range(257)]),
            422,
            "spec.initContainers",
        ),
        (
            pod(volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(1001)]),
            422,
            "spec.volumes",
        ),
        (
            pod(containers=[{"name": "a", "image": "a", "ports": [{"containerPort": 1}] * 1001}]),
            422,
            "spec.containers[0].ports",
        ),
        ({"metadata": {"name": "p", "labels": {f"l{n}": "" for n in range(40_000)}}}, 413, ""),
        (pod(**{f"x{n}": 1 for n in range(100_000)}), 413, ""),
        (pod(affinity=[[[{"a": [1]}]]] * 3000), 413, ""),
    ],
    ids=["20,000", "containers", "init", "volumes", "ports", "labels", "unknown", "nested"],
)
@pytest.mark.parametrize("strict", ["", "?fieldValidation=Strict"])
def test_too_much_of_anything_is_refused(
    server: ServerThread, body: Any, code: int, field: str, strict: str
) -> None:
    answered, status = server.ask("editor", "POST", PODS + strict, body)
    assert answered == code, status
    if field:
        assert status["details"]["causes"][0]["field"] == field
        assert status["details"]["causes"][0]["reason"] == "FieldValueTooMany"


def test_an_object_does_not_grow_beyond_it_by_patches(server: ServerThread) -> None:
    merge = "application/merge-patch+json"
    made = {"metadata": {"name": "m"}, "data": {"a": "b"}}
    assert server.ask("editor", "POST", MAPS, made)[0] == 201
    grow = [{"data": {f"{part}{n}": "" for n in range(6000)}} for part in "ab"]
    codes = [server.ask("editor", "PATCH", f"{MAPS}/m", one, content_type=merge)[0] for one in grow]
    assert codes == [200, 413]
    assert len(server.ask("editor", "GET", f"{MAPS}/m")[1]["data"]) < MAX_ENTRIES
    assert server.ask("editor", "DELETE", f"{MAPS}/m")[0] == 200


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" + "1," * 120_000 + "1]", 413),
        ("- a\n" * 60_000, 413),
        ("a: &a [x,x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n", 400),
        ("a: &a\n  b: *a\n", 400),
        ("[" * 5000, 400),
        ("a: !!python/object/apply:os.system [id]\n", 400),
        ("a: " + "x" * 300_000, 400),
    ],
    ids=["flow", "block", "billion laughs", "circle", "deep", "tag", "long"],
)
def test_yaml_that_is_dear_to_read_is_refused(server: ServerThread, text: str, code: int) -> None:
    assert server.ask("editor", "POST", PODS, text, content_type=YAML)[0] == code
    path = f"{PODS}/x?fieldManager=me"
    apply = "application/apply-patch+yaml"
    assert server.ask("editor", "PATCH", path, text, content_type=apply)[0] == code


def test_yaml_is_read_on_a_thread_of_its_own(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is read, others are answered: the reader waits here until that has been seen."""
    answered, read_on = threading.Event(), []

    def check(text: str) -> None:
        read_on.append(threading.current_thread().name)
        assert answered.wait(20)

    monkeypatch.setattr(bodies, "_check_events", check)
    text = json.dumps(pod()) + "\n" + "# \n" * bodies.QUICK_BYTES
    codes: list[int] = []
    asking = threading.Thread(
        target=lambda: codes.append(server.ask("editor", "POST", PODS, text, content_type=YAML)[0])
    )
    asking.start()
    while not read_on:
        assert asking.is_alive()
    assert server.ask("viewer", "GET", "/api/v1/namespaces")[0] == 200
    answered.set()
    asking.join(20)
    assert codes == [201]
    assert read_on[0].startswith("decoding")
