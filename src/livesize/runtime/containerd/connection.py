"""Reaches containerd: our private one, found or started, or one that is there already."""

from __future__ import annotations

import asyncio
from pathlib import Path

from livesize.machinery.clock import Clock
from livesize.runtime.containerd.cri_client import ContainerdUnreachableError, CriClient
from livesize.runtime.containerd.daemon import (
    CniFolders,
    ContainerdDaemon,
    GroupDriver,
    find_programs,
)
from livesize.runtime.containerd.group_driver import find_group_driver
from livesize.runtime.containerd.kubelet import has_kubelet_pods, kubelet_at
from livesize.runtime.containerd.requests import NODE_LABEL
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.oci import BUILT_IN_IMAGE

_START_SECONDS = 30.0
_FOREIGN_SECONDS = 10.0


class ContainerdConnection:
    """``daemon`` None: this containerd is not ours, and never stopped by us."""

    def __init__(
        self,
        client: CriClient,
        daemon: ContainerdDaemon | None,
        version: str,
        group_driver: GroupDriver,
    ) -> None:
        self.client = client
        self.daemon = daemon
        self.version = version
        self.group_driver = group_driver

    async def close(self, *, stop: bool) -> None:
        await self.client.close()
        if self.daemon is not None:
            if stop:
                await self.daemon.stop()
            else:
                self.daemon.let_go()


async def connect(
    root: Path,
    endpoint: Path | None,
    cni: CniFolders,
    group_driver: GroupDriver | None,
    clock: Clock,
) -> ContainerdConnection:
    """Return when containerd answers. ``root``: where a private one keeps its files.
    ``group_driver`` None: what a foreign one says; a private one writes groups itself."""
    if endpoint is None:
        return await _connect_private(root, cni, group_driver or GroupDriver.CGROUPFS, clock)
    return await _connect_foreign(endpoint, group_driver, clock)


async def _connect_private(
    root: Path, cni: CniFolders, group_driver: GroupDriver, clock: Clock
) -> ContainerdConnection:
    daemon = ContainerdDaemon(
        root, clock, sandbox_image=BUILT_IN_IMAGE, cni=cni, group_driver=group_driver
    )
    daemon.start()
    if daemon.has_old_settings():
        await daemon.stop()  # containers go on
        daemon.start()
    client = CriClient(daemon.socket, clock)
    try:
        return ContainerdConnection(
            client, daemon, await _first_answer(client, daemon), group_driver
        )
    except BaseException:
        await client.close()
        daemon.let_go()
        raise


async def _first_answer(client: CriClient, daemon: ContainerdDaemon) -> str:
    """Its version, or why it has ended."""

    async def until_ended() -> None:
        await daemon.wait_ended()
        raise RuntimeCallError(f"containerd ended at its start: {daemon.why_not()}")

    try:
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(until_ended())
            version = await _version(client, _START_SECONDS)
            ended.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return version


async def _connect_foreign(
    endpoint: Path, group_driver: GroupDriver | None, clock: Clock
) -> ContainerdConnection:
    socket = endpoint.absolute()
    if not socket.is_socket():
        raise RuntimeCallError(f"--runtime-endpoint {socket} is not a socket of a containerd")
    client = CriClient(socket, clock)
    try:
        version = await _version(client, _FOREIGN_SECONDS)
        await _require_usable(client)
        driver = group_driver or await find_group_driver(client)
    except BaseException:
        await client.close()
        raise
    return ContainerdConnection(client, None, version, driver)


async def _require_usable(client: CriClient) -> None:
    refusal = await _why_not_ours(client)
    if refusal:
        raise RuntimeCallError(f"the containerd at {client.socket} cannot be used: {refusal}")


async def _why_not_ours(client: CriClient) -> str:
    """Empty: nothing speaks against using it."""
    kubelet = kubelet_at(client.socket)
    sandboxes = await client.call("ListPodSandbox")
    if not kubelet and has_kubelet_pods((dict(one.labels) for one in sandboxes.items), NODE_LABEL):
        kubelet = "it runs pods that a kubelet made"
    if kubelet:
        return f"it is a kubelet's ({kubelet}); leave --runtime-endpoint out for a private one"
    return ""


async def _version(client: CriClient, seconds: float) -> str:
    answer = await client.call("Version", seconds=seconds)
    if answer.runtime_name != "containerd":
        raise ContainerdUnreachableError(
            f"{client.socket} is {answer.runtime_name}, not containerd"
        )
    return str(answer.runtime_version)


def find_ctr() -> str:
    """The program that imports images; every containerd brings it."""
    path = find_programs().ctr
    if not path:
        raise RuntimeCallError(
            "images are brought to containerd by ctr, which is not installed here;"
            " on Debian: apt-get install containerd"
        )
    return path
