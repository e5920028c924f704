"""What `livesize doctor` asks of this machine's runtimes; cli/ itself never touches them.

Each probe imports what it needs when it is called: every command imports this file.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from livesize.cli.doctor.checks import Finding
    from livesize.cli.doctor.containerd_checks import ContainerdTools

USUAL_SOCKET = "/run/containerd/containerd.sock"
_SECONDS = 3.0


def accelerator() -> list[Finding]:
    """For the doctor: what QEMU would use. Timed anew each time, unlike what an agent keeps."""
    from livesize.cli.doctor.vm_checks import accelerator_finding
    from livesize.runtime.accelerator import observe_accelerator

    found = observe_accelerator()
    return [accelerator_finding(found.accelerator.value, found.why)]


def containerd() -> list[Finding]:
    """For the doctor: what --runtime containerd would find, and who writes control groups."""
    from livesize.cli.doctor.containerd_checks import check_containerd

    return [check_containerd(observe_containerd())]


def rootless() -> list[Finding]:
    """For the doctor: what an ordinary user has, and what cannot be had without root."""
    if os.geteuid() == 0:
        return []
    from livesize.cli.doctor.rootless_checks import observe_user, rootless_findings
    from livesize.runtime.rootless.delegation import find_delegation

    def find_group() -> tuple[str, tuple[str, ...]]:
        found = find_delegation()
        return found.group, found.controllers

    return rootless_findings(observe_user(find_group))


def observe_containerd() -> ContainerdTools:
    from livesize.cli.doctor.containerd_checks import ContainerdTools
    from livesize.runtime.containerd.daemon import CniFolders, find_programs

    programs = find_programs()
    version = ""
    if programs.containerd:
        command = [programs.containerd, "--version"]
        version = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    configuration = Path(CniFolders().configuration)
    has_grpc = importlib.util.find_spec("grpc") is not None
    endpoint = os.environ.get("LIVESIZE_RUNTIME_ENDPOINT") or USUAL_SOCKET
    return ContainerdTools(
        missing=tuple(programs.missing()),
        version=version,
        has_grpc=has_grpc,
        network=_has_network(configuration),
        endpoint=endpoint,
        cgroup_driver=_driver_at(endpoint) if has_grpc else "",
    )


def _has_network(folder: Path) -> bool | None:
    """None: this user may not look."""
    try:
        return folder.is_dir() and any(folder.iterdir())
    except OSError:
        return None


def _driver_at(endpoint: str) -> str:
    """Empty: nobody answers there."""
    if not os.access(endpoint, os.R_OK | os.W_OK):
        return ""
    import asyncio

    from livesize.runtime.interface import RuntimeCallError

    try:
        return asyncio.run(_group_driver(Path(endpoint)))
    except (RuntimeCallError, TimeoutError):
        return ""


async def _group_driver(socket: Path) -> str:
    import asyncio

    from livesize.machinery.clock import SystemClock
    from livesize.runtime.containerd.cri_client import CriClient
    from livesize.runtime.containerd.group_driver import find_group_driver

    client = CriClient(socket, SystemClock())
    try:
        async with asyncio.timeout(_SECONDS):
            return (await find_group_driver(client)).value
    finally:
        await client.close()
