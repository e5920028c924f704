"""The audit log of a real `livesize up`: what was answered is told, also after kill -9."""

from __future__ import annotations

import json
import os
import pwd
import signal
import time
from pathlib import Path

import pytest

from integration.conftest import AUDIT_LOG
from livesize.main.wiring.accounts import Account
from livesize.main.wiring.apiserver_setup import prepare_audit_log
from system.up import Up

pytestmark = pytest.mark.apiserver

ABSENT = "/api/v1/namespaces/default/pods/absent-"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_was_answered_is_told_also_after_kill_9(fake_up: Up) -> None:
    log = fake_up.directory.parent / AUDIT_LOG
    for number in range(20):
        assert fake_up.request("GET", f"{ABSENT}{number}")[0] == 404
    time.sleep(0.1)  # as long as is promised
    os.kill(fake_up.control_plane_pid(), signal.SIGKILL)
    told = [str(line["requestURI"]) for line in lines(log)]
    assert [uri for uri in told if uri.startswith(ABSENT)] == [
        f"{ABSENT}{number}" for number in range(20)
    ]
    fake_up.wait_until(
        lambda: len(lines(log)) > len(told), "the next control plane goes on with the file"
    )


def test_a_folder_that_is_made_belongs_to_the_control_plane(tmp_path: Path) -> None:
    log = tmp_path / "new" / "audit.log"
    nobody = pwd.getpwnam("nobody")
    account = Account("nobody", nobody.pw_uid, nobody.pw_gid) if os.geteuid() == 0 else None
    assert prepare_audit_log(str(log), account) == str(log)
    owner = nobody.pw_uid if os.geteuid() == 0 else os.geteuid()
    assert (log.parent.stat().st_uid, log.parent.stat().st_mode & 0o777) == (owner, 0o700)
