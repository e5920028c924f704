"""`livesize up` started right after a kill -9 ended in "Address already in use" twice in 99 times,
and logged tracebacks ("store in use") 21 times: the control plane of the last start was still
ending, with the socket and the store in its hands."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from system.up import LIVESIZE, Up


@pytest.mark.apiserver
def test_a_new_start_waits_for_the_control_plane_of_the_last_one(tmp_path: Path) -> None:
    up = Up(tmp_path / "up", runtime="fake")
    up._arguments += ["--listen", f"127.0.0.1:{free_port()}"]
    up.start()
    child = up.control_plane_pid()
    os.kill(child, signal.SIGSTOP)  # it takes its time to end
    up.kill()
    words = [LIVESIZE, "up", *up._arguments]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as again:
        time.sleep(1.5)
        ended = again.poll()
        os.kill(child, signal.SIGCONT)
        assert ended is None, again.communicate()
        assert again.stdout is not None
        assert b"Livesize is ready" in again.stdout.readline()
        again.send_signal(signal.SIGTERM)
        _, errors = again.communicate(timeout=20)
    assert again.returncode == 0, errors.decode()
    assert "Traceback" not in up.log()
    assert b"child failed" not in errors


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
