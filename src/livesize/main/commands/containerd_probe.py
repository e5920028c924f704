"""For the doctor: what `--runtime containerd` would find here, and who writes control groups."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
from pathlib import Path

from livesize.cli.doctor.checks import Finding
from livesize.cli.doctor.containerd_checks import ContainerdTools, check_containerd

USUAL_SOCKET = "/run/containerd/containerd.sock"
_SECONDS = 3.0


def containerd() -> Finding:
    return check_containerd(observe_containerd())


def observe_containerd() -> ContainerdTools:
    from livesize.runtime.containerd.daemon import CniFolders, find_programs

    programs = find_programs()
    version = ""
    if programs.containerd:
        asked = subprocess.run(
            [programs.containerd, "--version"], capture_output=True, text=True, check=False
        )
        version = asked.stdout
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
    from livesize.runtime.interface import RuntimeCallError

    try:
        return asyncio.run(_ask(Path(endpoint)))
    except (RuntimeCallError, TimeoutError):
        return ""


async def _ask(socket: Path) -> str:
    from livesize.machinery.clock import SystemClock
    from livesize.runtime.containerd.group_driver import find_group_driver
    from livesize.runtime.containerd.link import Link

    link = Link(socket, SystemClock())
    try:
        async with asyncio.timeout(_SECONDS):
            return (await find_group_driver(link)).value
    finally:
        await link.close()
