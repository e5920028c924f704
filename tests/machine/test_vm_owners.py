"""Two VMs of one node: their QEMUs are different users, and neither can touch what is the other's.

They boot from a disk with nothing on it: what counts here is QEMU, not a guest.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from livesize.runtime.libvirt.owners import FIRST_UID, parse_uids
from livesize.runtime.libvirt.runtime import LibvirtRuntime
from vms.real import MIB, VM, Place, check_tools, clear, pod_config, vm_config

pytestmark = pytest.mark.vms

ONE, OTHER = "0b6f0c5e-0000-4a7f-9d53-0000000000aa", "0b6f0c5e-0000-4a7f-9d53-0000000000bb"
DISK = msgspec.structs.replace(VM, kernel="", initrd="", command_line="", disk="empty.img")

# Becomes the user, with nothing left of root's rights, and tries every way to each path.
TRY = """
import json, os, signal, socket, sys
uid, gid, pid, paths = json.loads(sys.argv[1])
os.setgroups([]); os.setgid(gid); os.setuid(uid)
got = []
for path in paths:
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(path, flags)); got.append(f"open {path}")
        except OSError:
            pass
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            short = os.path.basename(path)
            os.chdir(os.path.dirname(path))
            socket.socket(socket.AF_UNIX, kind).connect(short); got.append(f"connect {path}")
        except OSError:
            pass
for what in ("mem", "environ", "root"):
    try:
        os.close(os.open(f"/proc/{pid}/{what}", os.O_RDONLY)); got.append(f"/proc {what}")
    except OSError:
        pass
try:
    os.kill(pid, signal.SIGCONT); got.append("signal")
except OSError:
    pass
print(json.dumps(got))
"""


@pytest.fixture
async def where(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, not_run: Callable[[str], NoReturn]
) -> Place:
    check_tools(not_run)
    found = Place(tmp_path)
    found.images.mkdir()
    (found.images / "empty.img").write_bytes(bytes(MIB))
    # The agent's own folders are open here, so that only what is the VMs' keeps anybody out.
    made_by_pytest = tmp_path_factory.getbasetemp().parent
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(made_by_pytest):
            folder.chmod(0o755)
    return found


async def start(runtime: LibvirtRuntime, *uids: str) -> list[int]:
    pids = []
    for uid in uids:
        await runtime.create_pod(pod_config(uid))
        view = await runtime.start_container(vm_config(uid, vm=DISK))
        pids.append(view.pid)
    return pids


def user_of(pid: int) -> int:
    (uid,) = parse_uids(Path(f"/proc/{pid}/status").read_text())
    return uid


def files_of(where: Place, user: int) -> list[str]:
    """What stands in the folders of this user: disk, console, sockets of QEMU and of the guest."""
    return sorted(
        str(Path(folder, name))
        for folder, _, names in os.walk(where.state)
        for name in names
        if Path(folder).stat().st_uid == user
    )


def tries(user: int, pid: int, paths: list[str]) -> list[str]:
    asked = json.dumps([user, user, pid, paths])
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TRY, asked], capture_output=True, text=True, check=True
    )
    got: list[str] = json.loads(told.stdout)
    return got


async def test_neither_can_touch_what_is_the_others(where: Place) -> None:
    async with where.opened() as runtime:
        pids = await start(runtime, ONE, OTHER)
        users = [user_of(pid) for pid in pids]
        assert len(set(users)) == 2
        assert all(user >= FIRST_UID for user in users)
        theirs = files_of(where, users[1])
        assert any(path.endswith("disk.qcow2") for path in theirs)
        sockets = [path for path in theirs if stat.S_ISSOCK(Path(path).stat().st_mode)]
        assert len(sockets) == 3, "QEMU's own, and its guest's two lines"
        disk = next(path for path in theirs if path.endswith("disk.qcow2"))
        assert f"open {disk}" in tries(users[1], pids[1], theirs), "its own it can"
        got = await asyncio.to_thread(tries, users[0], pids[1], theirs)
        assert got == []


async def test_a_new_agent_keeps_who_is_who_and_gives_no_uid_twice(where: Place) -> None:
    runtime = where.runtime()
    await runtime.open()
    (pid,) = await start(runtime, ONE)
    user = user_of(pid)
    await runtime.close()  # it goes on
    again = where.runtime()
    await again.open()
    try:
        (other,) = await start(again, OTHER)
        assert user_of(other) != user
        await again.stop_container(ONE, "vm", 0)
        view = await again.start_container(vm_config(ONE, attempt=1, vm=DISK))
        assert user_of(view.pid) == user, "its disk is still its own"
    finally:
        await clear(again)
