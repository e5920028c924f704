"""Whoever writes an object, or a program whose words are in a status, does not write on the screen
of the admin who looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from livesize.client.kubeconfig import write_kubeconfig
from livesize.main.entry import cli
from system.api_server import ServerThread

pytestmark = pytest.mark.security

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\nnode/n1 Ready\r\u202e"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("server")
    with ServerThread(folder).running() as server:
        involved = {"kind": "Pod", "namespace": "default", "name": "p", "uid": EVIL}
        event = {
            "metadata": {"name": "e"},
            "involvedObject": involved,
            "reason": EVIL,
            "message": EVIL,
            "type": "Normal",
            "source": {"component": EVIL},
        }
        events = "/api/v1/namespaces/default/events"
        assert server.ask("editor", "POST", events, event)[0] == 201
        pod = {
            "metadata": {"name": "p", "annotations": {"a": EVIL}},
            "spec": {"containers": [{"name": "a", "image": "localhost/a:1"}]},
        }
        assert server.ask("editor", "POST", PODS, pod)[0] == 201
        state = {"waiting": {"reason": EVIL, "message": EVIL}}
        statuses = [{"name": "a", "state": state, "ready": False, "restartCount": 0}]
        status = {"reason": EVIL, "message": EVIL, "containerStatuses": statuses}
        merge = "application/merge-patch+json"
        path = f"{PODS}/p/status"
        assert server.ask("admin", "PATCH", path, {"status": status}, content_type=merge)[0] == 200
        path = folder / "kubeconfig"
        write_kubeconfig(
            path,
            server.server.url,
            server.server.ca_path.read_bytes(),
            server.tokens["admin"],
            "admin",
        )
        yield path


@pytest.mark.parametrize(
    "line",
    [
        "get events",
        "get events -o wide",
        "get pods",
        "get pods -o wide",
        "get pods -A",
        "get pod/p -o json",
        "get pod/p -o yaml",
        "get events -o name",
        "resize pod/p --cpu 1 --wait --timeout 0.1s",
        "get pod/\x1b[2J",
    ],
)
def test_no_control_character_reaches_the_screen(kubeconfig: Path, line: str) -> None:
    done = CliRunner().invoke(cli, [*line.split(), "--kubeconfig", str(kubeconfig)])
    assert done.output
    left = [one for one in done.output if one != "\n" and not one.isprintable()]
    assert left == [], done.output
