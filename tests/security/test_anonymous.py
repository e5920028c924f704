"""Nobody gets in without saying who they are, by whatever path."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.reviews import REVIEWS
from system.api_server import ServerThread

pytestmark = pytest.mark.security

OPEN = {"/healthz", "/livez", "/readyz", "/version", "/livesize/v1/ca"}
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("server")).running() as opened:
        yield opened


def raw(server: ServerThread, request: bytes) -> bytes:
    """The first line of the answer."""
    with server.tls() as connection:
        connection.sendall(request)
        return connection.recv(65536).split(b"\r\n")[0]


@pytest.mark.parametrize("resource", [*REGISTRY.stored(), *REVIEWS], ids=lambda one: one.plural)
def test_no_object_is_shown_or_taken(server: ServerThread, resource: object) -> None:
    path = resource.path("default")  # type: ignore[attr-defined]
    named = resource.path("default", "x")  # type: ignore[attr-defined]
    for method, where in (
        *(("GET", path), ("POST", path), ("DELETE", path), ("GET", f"{path}?watch=true")),
        *(("GET", named), ("PUT", named), ("PATCH", named), ("DELETE", named)),
    ):
        body = {} if method in ("POST", "PUT", "PATCH") else None
        assert server.ask("", method, where, body)[0] in (401, 404, 405), (method, where)
        assert server.ask("", method, where, body)[0] != 404 or resource in REVIEWS


@pytest.mark.parametrize(
    "path",
    [
        "/",
        *("/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3", "/metrics", "/logs"),
        *("/livesize/v1/join", "/livesize/v1/renew", "/debug/pprof", "/proxy", "/static/"),
        "/api/v1/namespaces/default/pods/x/exec?command=sh",
        "/api/v1/namespaces/default/pods/x/log",
        "/api/v1/namespaces/default/pods/x/portforward",
        "/api/v1/nodes/n1/proxy/",
    ],
)
def test_no_document_either(server: ServerThread, path: str) -> None:
    for method in ("GET", "POST", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW"):
        first = raw(server, f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert first.split()[1] in (b"401", b"404", b"405", b"400"), (method, first)


@pytest.mark.parametrize(
    "path",
    [
        f"/version/..{SECRETS}",
        f"/version/../..{SECRETS}",
        f"//{SECRETS}",
        f"/version{SECRETS}",
        f"/healthz/..;{SECRETS}",
        f"/healthz/%2e%2e{SECRETS}",
        f"/healthz%00{SECRETS}",
        SECRETS.replace("/secrets", "//secrets"),
        SECRETS.replace("secrets", "%73ecrets"),
        SECRETS + "/",
        SECRETS + "?path=/version",
        SECRETS + "#/version",
        f"http://localhost{SECRETS}",
        f"http://localhost/version/..{SECRETS}",
    ],
)
def test_no_way_of_writing_a_path_leads_past(server: ServerThread, path: str) -> None:
    first = raw(server, f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert first.split()[1] in (b"401", b"404", b"400"), first


@pytest.mark.parametrize(
    "header",
    [
        "Authorization: Bearer",
        "Authorization: Bearer ",
        "Authorization: Bearer null",
        "Authorization: Basic cm9vdDpyb290",
        "Authorization: Bearer " + "a" * 5000,
        "X-Remote-User: root\r\nX-Remote-Group: system:masters",
        "X-Forwarded-For: 127.0.0.1\r\nX-Real-Ip: 127.0.0.1\r\nForwarded: for=127.0.0.1",
        "X-Original-Url: /version\r\nX-Rewrite-Url: /version",
        "Impersonate-User: root",
        "Cookie: token=admin",
        "X-Ssl-Client-Cert: root",
    ],
)
def test_no_header_stands_for_a_token(server: ServerThread, header: str) -> None:
    first = raw(server, f"GET {SECRETS} HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n".encode())
    assert first.split()[1] == b"401"


def test_what_is_open_says_nothing_of_the_cluster(server: ServerThread) -> None:
    for path in sorted(OPEN):
        code, answer = server.ask("", "GET", path)
        assert code == 200
        assert "kube-system" not in str(answer)
