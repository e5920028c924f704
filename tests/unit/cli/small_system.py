"""A real API server over TLS, with a small node and small controllers that answer resizes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
import yaml
from click.testing import CliRunner, Result

from livesize.api.errors import StatusError
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, generation_of, lookup, name_of, namespace_of
from livesize.api.patch import PatchType
from livesize.api.quantity import format_memory
from livesize.api.resources import container_resources, containers_of, is_vm, size_of
from livesize.api.roles import Role
from livesize.api.vm_size import vm_size_of
from livesize.api.vm_status import statuses_of, vm_status_of
from livesize.api.workload_resize import HELD, asks_in_place, hold_of, template_of
from livesize.api.workloads import replicas_of, selects
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.cli.app import cli
from livesize.client.informer import Delta, Informer
from livesize.client.kubeconfig import write_kubeconfig
from livesize.machinery.context import system_context
from livesize.machinery.queue import WorkQueue, run_workers
from livesize.store.memory import MemoryStore

NODE = "n1"
LARGEST_CPU_MILLI = 4000
UNTOUCHED_CPU_MILLI = 3999  # the node never answers a resize to this size
EVIL_CPU_MILLI = 3998  # and answers one to this with words that would write on a screen
EVIL = "\x1b[2Jowned\r\u202e"


class SmallNode:
    """Binds pods to itself, starts them in words only, and answers every resize at once."""

    def __init__(self, server: ApiServer) -> None:
        self._client = server.client(node_identity(NODE))
        self._admin = server.client(Identity("test", Role.ADMIN))
        context = system_context()
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(context)
        self._informer = Informer(self._admin, PODS, context=context, on_change=self._changed)

    async def run(self) -> None:
        await self._admin.create(
            NODES,
            {
                "kind": "Node",
                "apiVersion": "v1",
                "metadata": {"name": NODE},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            group.create_task(run_workers(self._queue, self._look, 1))

    def _changed(self, delta: Delta) -> None:
        self._queue.add((namespace_of(delta.object), name_of(delta.object)))

    async def _look(self, key: tuple[str, str]) -> None:
        pod = self._informer.get(*key)
        if pod is None:
            return
        if lookup(pod, "metadata", "deletionTimestamp"):
            await self._client.delete(PODS, key[1], key[0], grace_period_seconds=0)
        elif not lookup(pod, "spec", "nodeName"):
            await self._bind(pod)
        elif not statuses_of(pod):
            patch = {"status": _status(pod)}
            await self._client.patch(PODS, key[1], patch, namespace=key[0], subresource="status")
        elif lookup(pod, "status", "resizeState", "phase") == "Requested":
            await self._answer(pod)

    async def _bind(self, pod: Object) -> None:
        body = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
            "target": {"kind": "Node", "name": NODE},
        }
        await self._admin.post(PODS, name_of(pod), namespace_of(pod), "binding", body)

    async def _answer(self, pod: Object) -> None:
        wanted = [size.requests.cpu_milli or 0 for size in container_resources(pod).values()]
        if UNTOUCHED_CPU_MILLI in wanted:
            return
        answers: list[Object] = [
            {
                "request": {"requestStatus": "Accepted"},
                "allocated": [size_of(container) for container in containers_of(pod)],
            },
            {"request": {"requestStatus": "Done"}, "status": _status(pod)},
        ]
        if max(wanted) > LARGEST_CPU_MILLI:
            request = {"requestStatus": "Rejected"}
            sentence = f"the node has {LARGEST_CPU_MILLI}m of cpu in all"
            answers = [{"request": request, "phase": "Infeasible", "message": sentence}]
        if EVIL_CPU_MILLI in wanted:
            request = {"requestStatus": "Rejected"}
            answers = [{"request": request, "phase": "Deferred", "message": EVIL}]
        for answer in answers:
            body = {
                "kind": "Resizing",
                "apiVersion": "v1",
                "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
                "generation": generation_of(pod),
                **answer,
            }
            await self._client.post(PODS, name_of(pod), namespace_of(pod), "resizing", body)


class SmallWorkloads:
    """Makes the pods of StatefulSets and Deployments. It resizes them to their template, the
    highest first, each when the one before has been answered; or, where the workload does not ask
    for that, makes them anew. What holds a workload it takes off in the end."""

    def __init__(self, server: ApiServer) -> None:
        self._client = server.client(Identity("small-workloads", Role.CONTROLLER))
        context = system_context()
        self._queue: WorkQueue[tuple[Resource, str, str]] = WorkQueue(context)
        self._workloads = {
            kind: Informer(self._client, kind, context=context, on_change=self._changed(kind))
            for kind in (STATEFUL_SETS, DEPLOYMENTS)
        }
        self._pods = Informer(self._client, PODS, context=context, on_change=self._pod_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in (*self._workloads.values(), self._pods):
                group.create_task(informer.run())
            group.create_task(run_workers(self._queue, self._look, 1))

    def _changed(self, kind: Resource) -> Callable[[Delta], None]:
        return lambda delta: self._queue.add(
            (kind, namespace_of(delta.object), name_of(delta.object))
        )

    def _pod_changed(self, _delta: Delta) -> None:
        for kind, informer in self._workloads.items():
            for workload in informer.items():
                self._queue.add((kind, namespace_of(workload), name_of(workload)))

    async def _look(self, key: tuple[Resource, str, str]) -> None:
        kind, namespace, name = key
        workload = self._workloads[kind].get(namespace, name)
        if workload is None:
            return
        owner = await self._owner(kind, workload)
        pods = {name_of(pod): pod for pod in self._pods.items() if selects(workload, pod)}
        template = template_of(workload)
        missing = [f"{name}-{one}" for one in range(replicas_of(workload))]
        for one in missing:
            if one not in pods:
                await self._make(one, namespace, owner, template)
        behind = [pods[one] for one in reversed(missing) if one in pods]
        behind = [
            pod for pod in behind if container_resources(pod) != container_resources(template)
        ]
        if behind:
            await self._renew(workload, behind[0], template)
        elif hold_of(workload) is not None:
            await self._release(kind, workload)
        generation = generation_of(workload)
        if lookup(workload, "status", "observedGeneration") != generation:
            status = {"observedGeneration": generation, "replicas": replicas_of(workload)}
            patch = {"status": status}
            await self._client.patch(kind, name, patch, namespace=namespace, subresource="status")

    async def _owner(self, kind: Resource, workload: Object) -> Object:
        if kind is STATEFUL_SETS:
            return workload
        name, namespace = f"{name_of(workload)}-1", namespace_of(workload)
        spec = {key: workload["spec"][key] for key in ("selector", "template")}
        labels = lookup(workload, "spec", "template", "metadata", "labels")
        metadata = {"name": name, "labels": labels, "ownerReferences": [_reference(workload)]}
        made = {
            "kind": REPLICA_SETS.kind,
            "apiVersion": REPLICA_SETS.api_version,
            "metadata": metadata,
            "spec": {**spec, "replicas": replicas_of(workload)},
        }
        with contextlib.suppress(StatusError):  # it is there
            return await self._client.create(REPLICA_SETS, made, namespace)
        return await self._client.get(REPLICA_SETS, name, namespace)

    async def _make(self, name: str, namespace: str, owner: Object, template: Object) -> None:
        labels = lookup(template, "metadata", "labels", default={})
        metadata = {"name": name, "labels": labels, "ownerReferences": [_reference(owner)]}
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": template["spec"]}
        with contextlib.suppress(StatusError):  # it is there, which the cache does not show yet
            await self._client.create(PODS, pod, namespace)

    async def _renew(self, workload: Object, pod: Object, template: Object) -> None:
        name, namespace = name_of(pod), namespace_of(pod)
        if not asks_in_place(workload):
            await self._client.delete(PODS, name, namespace, grace_period_seconds=0)
            return
        sizes = [
            {"name": one["name"], "resources": one["resources"]} for one in containers_of(template)
        ]
        await self._client.patch(
            *(PODS, name, {"spec": {"containers": sizes}}),
            namespace=namespace,
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )

    async def _release(self, kind: Resource, workload: Object) -> None:
        if any(
            lookup(pod, "status", "resizeState", "phase") not in (None, "None", "Done")
            for pod in self._pods.items()
            if selects(workload, pod)
        ):
            return
        hold = hold_of(workload)
        assert hold is not None
        spec: Object = {"paused": None}
        if kind is STATEFUL_SETS:
            spec = {"updateStrategy": hold.strategy}
        patch = {"metadata": {"annotations": {HELD: None}}, "spec": spec}
        await self._client.patch(kind, name_of(workload), patch, namespace=namespace_of(workload))


def _reference(owner: Object) -> Object:
    return {
        "kind": owner["kind"],
        "apiVersion": owner["apiVersion"],
        "name": name_of(owner),
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


NO_IMAGE = "image guest is not on this machine; `livesize guest build` makes a guest to try"


def _state(pod: Object) -> Object:
    if name_of(pod) == "imageless":
        return {"waiting": {"reason": "ErrImageNeverPull", "message": NO_IMAGE}}
    return {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def _status(pod: Object) -> Object:
    statuses = [
        {
            "name": container["name"],
            "ready": True,
            "restartCount": 0,
            "image": container.get("image", ""),
            "imageID": "",
            "state": _state(pod),
            "resources": container.get("resources", {}),
        }
        for container in containers_of(pod)
    ]
    shared = {"phase": "Running", "observedGeneration": generation_of(pod)}
    if not is_vm(pod):
        return {**shared, "containerStatuses": statuses}
    size = vm_size_of(pod)
    guest = {
        "vcpusPlugged": size.vcpus,
        "vcpusOnline": size.vcpus,
        "memoryRequested": format_memory(size.memory_bytes),
        "memoryPlugged": format_memory(size.memory_bytes),
        "memorySeen": format_memory(size.memory_bytes - 50 * 2**20),
    }
    cells = [
        {"id": cell.id, **dict.fromkeys(("requested", "plugged", "seen"), format_memory(now))}
        for cell in size.cells
        if (now := cell.memory_bytes)
    ]
    memory: Object = {
        "technology": "virtio-mem",
        "maxBootTime": format_memory(size.boot_memory_bytes),
        "current": format_memory(size.memory_bytes),
        "maxExpandable": format_memory(size.max_memory_bytes),
    }
    vm = {**vm_status_of(statuses[0]), "guest": guest, "memory": memory, "cells": cells}
    return {**shared, "virtualMachineStatus": vm}


class Running:
    """Server and node in a thread with a loop of their own, so that commands can run here."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._folder = folder
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._serve)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            self._ready.set()
            self._loop.close()

    async def _main(self) -> None:
        token, entry = issue_token("admin", Role.ADMIN)
        write_tokens(self._folder / "tokens", [entry])
        config = ApiServerConfig(self._folder / "tls", self._folder / "tokens", port=0)
        async with ApiServer(config, MemoryStore(), context=system_context()).running() as server:
            ca_pem = server.ca_path.read_bytes()
            write_kubeconfig(self.kubeconfig, server.url, ca_pem, token, "admin")
            async with asyncio.TaskGroup() as group:
                parts = (SmallNode(server), SmallWorkloads(server))
                tasks = [group.create_task(part.run()) for part in parts]
                self._ready.set()
                await self._stop.wait()
                for task in tasks:
                    task.cancel()


class Shell:
    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def run(self, line: str, stdin: str | None = None) -> Result:
        environment = {"LIVESIZE_KUBECONFIG": str(self.kubeconfig)}
        return CliRunner().invoke(cli, line.split(), input=stdin, env=environment)

    def ok(self, line: str, stdin: str | None = None) -> str:
        answer = self.run(line, stdin)
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    def fails(self, line: str, stdin: str | None = None) -> str:
        """Exit code 1 and one sentence, which is returned."""
        answer = self.run(line, stdin)
        assert answer.exit_code == 1, answer.output
        assert answer.stderr.startswith("livesize: ")
        assert answer.stderr.count("\n") == 1
        return answer.stderr

    def pod(self, name: str) -> Object:
        pod: Object = json.loads(self.ok(f"get pod/{name} -o json"))
        return pod

    def start(self, name: str, cpu: str = "500m", limit: str = "500m", **labels: str) -> None:
        self.begin(name, manifest(name, cpu, limit, **labels))

    def begin(self, name: str, text: str) -> None:
        self.ok("apply -f -", text)
        for _ in range(500):
            if statuses_of(self.pod(name)):
                return
        raise AssertionError(f"{name} does not run")

    def start_workload(self, kind: Resource, name: str = "db", **changes: Any) -> None:
        """With two pods, which run."""
        text = workload_manifest(kind, name, **changes)
        self.ok("apply -f -", text)
        for _ in range(500):
            pods = json.loads(self.ok(f"get pods -l app={name} -o json"))["items"]
            if len(pods) == 2 and all(map(statuses_of, pods)):
                return
        raise AssertionError(f"{name} has no pods that run")

    def workload(self, label: str) -> Object:
        found: Object = json.loads(self.ok(f"get {label} -o json"))
        return found


def manifest(name: str, cpu: str = "500m", limit: str = "500m", **labels: str) -> str:
    memory = {"memory": "64Mi"}
    resources = {"requests": {"cpu": cpu, **memory}, "limits": {"cpu": limit, **memory}}
    container = {"name": "app", "image": "img:1", "resources": resources}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return yaml.safe_dump(pod)


def workload_manifest(
    kind: Resource,
    name: str = "db",
    annotations: dict[str, str] | None = None,
    spec: Object | None = None,
    **container: Any,
) -> str:
    template = yaml.safe_load(manifest(name, app=name))
    template["spec"]["containers"][0].update(container)
    workload = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations or {}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
            **(spec or {}),
        },
    }
    return yaml.safe_dump(workload)


def vm_manifest(name: str) -> str:
    vm = {"kernel": {"image": "guest"}, "resources": {"limits": {"cpu": "1", "memory": "512Mi"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"virtualMachine": vm, "terminationGracePeriodSeconds": 0},
    }
    return yaml.safe_dump(pod)
