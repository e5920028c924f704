"""Which login of which pull secret is used for which image."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from livesize.api.pull_secrets import PullLogin, logins_for, registry_of


def secret(auths: dict[str, Any], key: str = ".dockerconfigjson") -> dict[str, Any]:
    document = {"auths": auths} if key == ".dockerconfigjson" else auths
    return {"data": {key: base64.b64encode(json.dumps(document).encode()).decode()}}


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("nginx", "docker.io"),
        ("nginx:1", "docker.io"),
        ("team/app:1", "docker.io"),
        ("docker.io/library/nginx", "docker.io"),
        ("index.docker.io/library/nginx", "docker.io"),
        ("registry.example/team/app:1", "registry.example"),
        ("registry:5000/app", "registry:5000"),
        ("localhost/livesize/busybox:1", "localhost"),
        ("127.0.0.1:5000/app@sha256:0", "127.0.0.1:5000"),
    ],
)
def test_where_an_image_comes_from(image: str, registry: str) -> None:
    assert registry_of(image) == registry


@pytest.mark.parametrize(
    "server", ["registry.example", "https://registry.example", "https://registry.example/v1/"]
)
def test_a_login_is_found_however_the_registry_is_written(server: str) -> None:
    entry = {"username": "u", "password": "p", "auth": "YTpi", "identitytoken": "t"}
    found = logins_for("registry.example/app:1", [secret({server: entry})])
    assert found == (PullLogin(server, "u", "p", "YTpi", "t"),)
    assert logins_for("other.example/app:1", [secret({server: entry})]) == ()


def test_the_hub_has_many_names() -> None:
    found = logins_for("nginx", [secret({"https://index.docker.io/v1/": {"username": "u"}})])
    assert [login.username for login in found] == ["u"]


def test_the_longer_path_is_tried_first_and_a_strange_one_never() -> None:
    entries = {
        "registry.example": {"username": "all"},
        "registry.example/team": {"username": "team"},
        "registry.example/teams": {"username": "strange"},
    }
    found = logins_for("registry.example/team/app:1", [secret(entries)])
    assert [login.username for login in found] == ["team", "all"]


def test_the_older_shape_is_read_too() -> None:
    found = logins_for("r.example/a", [secret({"r.example": {"username": "u"}}, ".dockercfg")])
    assert [login.username for login in found] == ["u"]


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"data": None},
        {"data": {".dockerconfigjson": "not base64!"}},
        {"data": {".dockerconfigjson": base64.b64encode(b"[]").decode()}},
        {"data": {".dockerconfigjson": base64.b64encode(b"{").decode()}},
        secret({"r.example": "text"}),
    ],
)
def test_what_cannot_be_read_is_left_out(broken: dict[str, Any]) -> None:
    assert logins_for("r.example/a", [broken]) == ()
