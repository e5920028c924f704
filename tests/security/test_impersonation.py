"""`kubectl --as`: an admin acts as another, with that one's rights; nobody else can."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livesize.apiserver.http.audit import AuditSettings
from system.api_server import ServerThread

pytestmark = pytest.mark.security

NAMESPACES = "/api/v1/namespaces"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, audit: Path) -> Iterator[ServerThread]:
    folder = tmp_path_factory.mktemp("server")
    with ServerThread(folder, audit=AuditSettings(audit)).running() as opened:
        yield opened


def who_am_i(server: ServerThread, who: str, **headers: str) -> Any:
    code, answer = server.ask(who, "POST", WHO, {}, **headers)
    return answer["status"]["userInfo"]["username"] if code == 201 else code


def test_an_admin_who_acts_as_a_viewer_may_only_read(server: ServerThread) -> None:
    made = {"metadata": {"name": "by-viewer"}}
    as_viewer = {"Impersonate_User": "vi"}
    assert who_am_i(server, "admin", **as_viewer) == "vi"
    assert server.ask("admin", "GET", NAMESPACES, **as_viewer)[0] == 200
    assert server.ask("admin", "POST", NAMESPACES, made, **as_viewer)[0] == 403
    assert server.ask("admin", "GET", f"{NAMESPACES}/by-viewer")[0] == 404


def test_groups_say_the_role(server: ServerThread) -> None:
    limited = {"Impersonate_User": "new", "Impersonate_Group": "livesize:viewer"}
    assert who_am_i(server, "admin", **limited) == "new"
    assert server.ask("admin", "DELETE", f"{NAMESPACES}/team", **limited)[0] == 403
    node = {"Impersonate_User": "system:node:n1", "Impersonate_Group": "system:nodes"}
    assert server.ask("admin", "GET", "/api/v1/pods", **node)[0] == 403


@pytest.mark.parametrize("who", ["editor", "viewer", "team", "scheduler", "controller", "n1"])
def test_nobody_else_acts_as_another(server: ServerThread, who: str) -> None:
    for headers in (
        {"Impersonate_User": "root"},
        {"Impersonate_User": "root", "Impersonate_Group": "system:masters"},
    ):
        code, status = server.ask(who, "GET", NAMESPACES, **headers)
        assert (code, "cannot impersonate" in status["message"]) == (403, True)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Impersonate_User": "nobody-we-know"}, 403),
        ({"Impersonate_User": "x", "Impersonate_Group": "no-role"}, 403),
        ({"Impersonate_User": "system:node:n1", "Impersonate_Group": "livesize:viewer"}, 403),
        ({"Impersonate_User": "vi", "Impersonate_Uid": "1"}, 403),
        ({"Impersonate_User": "vi", "Impersonate_Extra_scopes": "a"}, 403),
        ({"Impersonate_Group": "system:masters"}, 400),
        ({"Impersonate_Extra_scopes": "a"}, 400),
        ({"Impersonate_User": ""}, 400),
    ],
)
def test_what_cannot_be_acted_as_is_not_the_admin_instead(
    server: ServerThread, headers: dict[str, str], code: int
) -> None:
    assert server.ask("admin", "GET", NAMESPACES, **headers)[0] == code


def test_an_admin_gets_no_certificate_of_a_node_by_acting_as_one(server: ServerThread) -> None:
    node = {"Impersonate_User": "system:node:n1", "Impersonate_Group": "system:nodes"}
    assert server.ask("admin", "POST", "/livesize/v1/renew", {"request": ""}, **node)[0] == 404


def test_who_is_not_known_acts_as_nobody(server: ServerThread) -> None:
    assert server.ask("", "GET", NAMESPACES, Impersonate_User="root")[0] == 401


def test_the_audit_log_names_both(server: ServerThread, audit: Path) -> None:
    assert server.ask("admin", "GET", f"{NAMESPACES}/team?both", Impersonate_User="vi")[0] == 200
    lines: list[Any] = []
    while not lines:  # a thread writes it, a moment later
        told = [json.loads(line) for line in audit.read_text().splitlines()]
        lines = [one for one in told if one["requestURI"].endswith("team?both")]
    assert lines[0]["user"]["username"] == "root"
    assert lines[0]["impersonatedUser"]["username"] == "vi"
    assert lines[0]["impersonatedUser"]["groups"] == ["livesize:viewer", "system:authenticated"]
