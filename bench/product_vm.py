"""A VM pod of a running `livesize up`: made, resized and deleted as a user would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import orjson

from bench.bench_resize import Told
from bench.guest_eye import INITRD_NAME
from bench.pods import NAMESPACE, PODS_PATH
from bench.servers import System
from bench.wire import Address, Wire, request_bytes
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection, WatchEvent, WatchEventType
from livesize.api.objects import Object, generation_of, lookup, name_of, uid_of, version_of
from livesize.api.vm_size import Technology
from livesize.client.http import HttpClient
from livesize.client.kubeconfig import connection_from
from livesize.guest_images.vm_guest import KERNEL_NAME

WAIT_SECONDS = 60.0
_MERGE = "application/merge-patch+json"


class ProductVm:
    """One pod at a time. A VM's size is its limits; requests stay small, so that any machine has
    room for it."""

    def __init__(self, system: System, client: HttpClient, max_vcpus: int, boot_mib: int) -> None:
        self._client = client
        self._token = connection_from(system.directory.kubeconfig).token
        self._max_vcpus = max_vcpus
        self._boot_mib = boot_mib
        self._pods = 0
        self._pod: Object = {}
        self._ca_cert = system.directory.tls / "ca.crt"
        self.libvirt = system.directory.vms / "libvirt"

    @property
    def uid(self) -> str:
        return uid_of(self._pod)

    @property
    def console(self) -> Path:
        return self.libvirt / "log" / "vms" / self.uid / "0.log"

    async def boot(self, technology: Technology) -> float:
        """Seconds from the POST to the moment at which a watch says that the pod is ready."""
        self._pods += 1
        name = f"bench-vm-{self._pods}"
        pod = vm_manifest(name, self._max_vcpus, self._boot_mib, technology)
        began = time.perf_counter()
        made = await self._client.create(PODS, pod, NAMESPACE)
        event = await self._until(made, lambda event: _is_ready(event.object))
        ready_at = time.perf_counter()
        self._pod = event.object
        return ready_at - began

    async def end(self) -> None:
        name = name_of(self._pod)
        await self._client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
        await self._until(self._pod, lambda event: event.type is WatchEventType.DELETED)

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[Resizer]:
        """Resizes of the pod that runs now."""
        port = int(self._client.server.rpartition(":")[2])
        wire = await Wire.open(Address(port, self._ca_cert))
        told = Told()
        async with asyncio.TaskGroup() as tasks:
            follower = tasks.create_task(told.follow(self._client, self._pod))
            try:
                yield Resizer(wire, told, self._token, name_of(self._pod))
            finally:
                follower.cancel()
                wire.close()

    async def _until(self, pod: Object, holds: Callable[[WatchEvent], bool]) -> WatchEvent:
        selection = Selection(NAMESPACE, fields=f"metadata.name={name_of(pod)}")
        stream = self._client.watch(PODS, selection, resource_version=version_of(pod))
        async with asyncio.timeout(WAIT_SECONDS), aclosing(cast("Any", stream)):
            async for event in stream:
                if holds(event):
                    return event
        raise AssertionError("the API server ended the watch")


class Resizer:
    """One resize after the other of one pod."""

    def __init__(self, wire: Wire, told: Told, token: str, name: str) -> None:
        self._wire = wire
        self._told = told
        self._token = token
        self._path = f"{PODS_PATH}/{name}/resize"
        self._generation = 0

    async def resize(self, **limits: str) -> float:
        """When the PATCH was sent; returns when it was answered."""
        patch = {"spec": {"virtualMachine": {"resources": {"limits": limits}}}}
        request = request_bytes("PATCH", self._path, self._token, patch, _MERGE)
        began = time.perf_counter()
        answer = await self._wire.ask(request)
        self._generation = generation_of(orjson.loads(answer))
        return began

    async def done(self) -> float:
        """When a watch told that the last resize is Done."""
        return await self._told.done(self._generation)


def vm_manifest(name: str, max_vcpus: int, boot_mib: int, technology: Technology) -> Object:
    resources = {
        "requests": {"cpu": "1", "memory": f"{boot_mib // 2}Mi"},
        "limits": {"cpu": "1", "memory": f"{boot_mib}Mi"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "virtualMachine": {
                "kernel": {"image": KERNEL_NAME, "initrd": INITRD_NAME},
                "cpu": {"max": str(max_vcpus)},
                "memory": {
                    "max": f"{4 * boot_mib}Mi",
                    "boot": f"{boot_mib}Mi",
                    "technology": technology.value,
                },
                "resources": resources,
            },
        },
    }


def _is_ready(pod: Object) -> bool:
    conditions = lookup(pod, "status", "conditions", default=[])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
