"""The audit log: a line for each request, none with a secret, and no request waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livesize.apiserver.http import audit
from livesize.apiserver.http.audit import AuditLevel, AuditLog, AuditSettings, audited

PODS = "/api/v1/namespaces/default/pods"
POD = {
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "app", "image": "busybox:1"}]},
}


class Log:
    """The rig's application, audited; ``lines`` ends it."""

    def __init__(self, rig: Any, path: Path, level: AuditLevel) -> None:
        self.path = path
        self._manager = audited(rig.app, AuditSettings(path, level), rig.clock)
        rig.app = self._manager.__enter__()

    def lines(self) -> list[Any]:
        self._manager.__exit__(None, None, None)
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "audit.log"


async def test_who_did_what_to_which_object(rig: Any, path: Path) -> None:
    log = Log(rig, path, AuditLevel.METADATA)
    made = await rig.request("POST", PODS, POD, token="editor", headers={"user-agent": "kubectl"})
    refused = await rig.request("DELETE", f"{PODS}/web", token="viewer")
    await rig.get("/api/v1/nodes", token="guess")
    await rig.get("/healthz")
    first, second, third = log.lines()
    assert (made.status, refused.status) == (201, 403)
    assert first["user"] == {
        "username": "ed",
        "groups": ["livesize:editor", "system:authenticated"],
    }
    assert (first["verb"], first["responseStatus"]["code"]) == ("create", 201)
    assert first["objectRef"] == {"resource": "pods", "namespace": "default", "apiVersion": "v1"}
    assert (first["userAgent"], first["level"]) == ("kubectl", "Metadata")
    assert first["annotations"]["apiserver.latency.k8s.io/total"].endswith("ms")
    assert "requestObject" not in first
    assert made.headers["audit-id"] == first["auditID"] != second["auditID"]
    assert (second["verb"], second["objectRef"]["name"]) == ("delete", "web")
    assert second["responseStatus"]["code"] == 403
    assert third["user"]["username"] == "system:anonymous"
    assert third["responseStatus"]["code"] == 401


async def test_a_watch_is_told_when_it_begins(rig: Any, path: Path) -> None:
    log = Log(rig, path, AuditLevel.METADATA)
    stream = await rig.watch(PODS, token="viewer")
    await stream.hang_up()
    (line,) = log.lines()
    assert (line["verb"], line["stage"]) == ("watch", "ResponseStarted")


async def test_bodies_are_kept_where_asked_for(rig: Any, path: Path) -> None:
    log = Log(rig, path, AuditLevel.REQUEST)
    await rig.request("POST", PODS, POD)
    await rig.request("POST", PODS, b"{no json")
    await rig.request("POST", PODS, b'"' + b"x" * audit.MAX_BODY_BYTES + b'"')
    first, second, third = log.lines()
    assert first["requestObject"] == POD
    assert "not JSON" in second["requestObject"]
    assert "left out" in third["requestObject"]


@pytest.mark.parametrize("level", [AuditLevel.METADATA, AuditLevel.REQUEST])
async def test_no_token_and_no_secret_is_ever_written(
    rig: Any, path: Path, level: AuditLevel
) -> None:
    log = Log(rig, path, level)
    secret = {"kind": "Secret", "apiVersion": "v1", "data": {"password": "aHVzaA=="}}
    secrets = "/api/v1/namespaces/default/secrets"
    await rig.request("POST", secrets, {**secret, "metadata": {"name": "s"}})
    await rig.request("PUT", f"{secrets}/s", secret)
    await rig.request("POST", PODS, secret)
    await rig.request("POST", "/livesize/v1/join", secret, token="join-token")
    assert len(log.lines()) == 4
    text = path.read_text()
    assert "aHVzaA==" not in text
    assert "join-token" not in text


@pytest.mark.parametrize("settings", [AuditSettings(), AuditSettings(Path("x"), AuditLevel.NONE)])
def test_without_a_log_the_door_is_as_it_was(rig: Any, settings: AuditSettings) -> None:
    with audited(rig.app, settings, rig.clock) as app:
        assert app is rig.app


def test_files_are_turned_over_by_size_and_only_some_are_kept(path: Path) -> None:
    for number in range(6):
        with AuditLog(path, max_bytes=10, max_backups=2) as log:
            log.put(b"line %d..\n" % number)
    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2"]
    assert [(path.parent / name).read_text()[5] for name in names] == ["5", "4", "3"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_lost_is_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_WAITING", 2)
    log = AuditLog(path)
    for number in range(5):
        log.put(b"%d\n" % number)  # nobody writes yet
    monkeypatch.setattr(audit, "MAX_WAITING", 20)
    log.put(b"5\n")
    with log:
        pass
    assert path.read_text().splitlines() == ["0", "1", '{"kind":"Lost","lines":3}', "5"]


def test_a_full_disk_stops_nobody(path: Path) -> None:
    with AuditLog(Path("/dev/full")) as log:
        log.put(b"x\n")
