"""The control plane's files and the agent's socket are for its own user alone, not for `nobody`."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator

import pytest

from system.up import Up

pytestmark = pytest.mark.security


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    started = Up(folder / "data", runtime="fake")
    try:
        started.start()
        yield started
    finally:
        started.end()


def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    return subprocess.run([*nobody, *words], capture_output=True, text=True, check=False)


def test_it_runs_as_its_own_user(up: Up) -> None:
    owner = os.stat(f"/proc/{up.control_plane_pid()}").st_uid  # noqa: PTH116
    assert pwd.getpwuid(owner).pw_name == "livesize"


def test_nobody_reads_the_key_of_the_authority_or_the_identities(up: Up) -> None:
    for name in ("tls/ca.key", "tls/apiserver.key", "tokens.json", "store.db"):
        path = up.directory / "control" / name
        assert path.exists()
        assert as_nobody("cat", str(path)).returncode != 0


def test_nobody_speaks_to_the_agent(up: Up) -> None:
    path = up.directory / "control" / "endpoint.sock"
    assert path.is_socket()
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.sendall(b'GET /logs/a/b HTTP/1.0\\r\\n\\r\\n'); print(s.recv(99))"
    )
    said = as_nobody("/usr/bin/python3", "-c", program, str(path))
    assert "PermissionError" in said.stderr


def test_nobody_traces_it(up: Up) -> None:
    pid = up.control_plane_pid()
    for name in ("mem", "environ", "maps"):
        assert as_nobody("cat", f"/proc/{pid}/{name}").returncode != 0
