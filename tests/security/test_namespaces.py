"""Who is limited to a namespace neither sees nor touches anything outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from system.api_server import ServerThread

pytestmark = pytest.mark.security

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
OTHER, OWN = "/api/v1/namespaces/default", "/api/v1/namespaces/team"
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "a", "image": "localhost/a:1"}]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("server")).running() as opened:
        for where in (OTHER, OWN):
            assert opened.ask("admin", "POST", f"{where}/pods", POD)[0] == 201
            secret = {"metadata": {"name": "s"}, "stringData": {"key": "hidden"}}
            assert opened.ask("admin", "POST", f"{where}/secrets", secret)[0] == 201
        yield opened


@pytest.mark.parametrize(
    "path",
    [
        *("/api/v1/pods", "/api/v1/secrets", "/api/v1/events", "/api/v1/nodes"),
        *("/api/v1/namespaces", OTHER, "/api/v1/persistentvolumes"),
        *(f"{OTHER}/pods", f"{OTHER}/pods/p", f"{OTHER}/secrets/s", f"{OTHER}/pods/p/log"),
        *(f"{OTHER}/pods?watch=true", "/api/v1/pods?watch=true", "/api/v1/watch/pods"),
        "/api/v1/pods?fieldSelector=metadata.namespace%3Dteam",
        f"{OWN}/../default/secrets/s",
        f"{OWN}%2F..%2Fdefault/secrets/s",
        "/api/v1/namespaces/team%2F..%2Fdefault/secrets/s",
        f"{OWN}/secrets/..%2F..%2Fdefault%2Fsecrets%2Fs",
        "/api/v1/namespaces//secrets/s",
        "/apis/metrics.k8s.io/v1beta1/pods",
        f"{OTHER}/pods/p/exec?command=sh&stdout=1",
    ],
)
def test_nothing_of_others_is_read(server: ServerThread, path: str) -> None:
    code, answer = server.ask("team", "GET", path)
    assert code in (403, 404, 400)
    assert "aGlkZGVu" not in str(answer)


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type"),
    [
        ("POST", f"{OTHER}/pods", {**POD, "metadata": {"name": "x"}}, ""),
        ("POST", f"{OWN}/pods", {**POD, "metadata": {"name": "x", "namespace": "default"}}, ""),
        ("PATCH", f"{OTHER}/pods/p", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        ("PATCH", f"{OWN}/pods/p", {"metadata": {"namespace": "default"}}, MERGE),
        ("PATCH", f"{OTHER}/pods/p?fieldManager=a", {"metadata": {"labels": {"a": "b"}}}, APPLY),
        ("PATCH", f"{OTHER}/pods/p/resize", {"spec": {}}, MERGE),
        ("DELETE", f"{OTHER}/pods/p", None, ""),
        ("DELETE", f"{OTHER}/pods", None, ""),
        ("POST", f"{OTHER}/pods/p/eviction", {"metadata": {"name": "p"}}, ""),
        ("POST", f"{OWN}/pods/p/binding", {"target": {"name": "n1"}}, ""),
        ("PATCH", f"{OWN}/pods/p/status", {"status": {"phase": "Failed"}}, MERGE),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}, ""),
        ("PATCH", OWN, {"metadata": {"labels": {"a": "b"}}}, MERGE),
        ("DELETE", OWN, None, ""),
        ("POST", f"{OWN}/resourcequotas", {"metadata": {"name": "q"}, "spec": {}}, ""),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "n9"}}, ""),
        (
            "POST",
            f"{OWN}/events",
            {
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            },
            "",
        ),
    ],
)
def test_nothing_of_others_is_changed(
    server: ServerThread, method: str, path: str, body: Any, content_type: str
) -> None:
    before = server.ask("admin", "GET", f"{OTHER}/pods/p")[1]
    kind = content_type or "application/json"
    if isinstance(body, dict) and content_type == APPLY:
        body = {"apiVersion": "v1", "kind": "Pod", **body}
    code, answer = server.ask("team", method, path, body, content_type=kind)
    assert code in (400, 403, 422), answer
    assert server.ask("admin", "GET", f"{OTHER}/pods/p")[1] == before


@pytest.mark.parametrize("name", ["default/s", "../../default/secrets/s", "s?namespace=default"])
def test_a_pod_uses_the_secrets_of_its_own_namespace_alone(server: ServerThread, name: str) -> None:
    """What looks like another namespace is not one: its node is not given that Secret either."""
    volumes = [{"name": "v", "secret": {"secretName": name}}]
    spec = {**POD["spec"], "volumes": volumes, "nodeName": "n1"}
    made = {"metadata": {"generateName": "thief-"}, "spec": spec}
    assert server.ask("team", "POST", f"{OWN}/pods", made)[0] in (201, 422)
    for path in (f"{OTHER}/secrets/s", f"{OWN}/secrets/{name}"):
        code, answer = server.ask("n1", "GET", path)
        assert (code in (403, 404, 405), "aGlkZGVu" in str(answer)) == (True, False)
