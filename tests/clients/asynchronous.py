"""kubernetes_asyncio, in an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

from clients.interface import NAMESPACE, Change, Listing, RefusedError, Tree


class Asynchronous:
    def __init__(self, kubeconfig: Path) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(config.new_client_from_config(str(kubeconfig)))
        self._core = client.CoreV1Api(self._client)
        self._objects = client.CustomObjectsApi(self._client)

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def create(self, pod: Tree) -> Tree:
        return self._tree(self._core.create_namespaced_pod(NAMESPACE, pod))

    def get(self, name: str) -> Tree:
        return self._tree(self._core.read_namespaced_pod(name, NAMESPACE))

    def replace(self, pod: Tree) -> Tree:
        name = pod["metadata"]["name"]
        return self._tree(self._core.replace_namespaced_pod(name, NAMESPACE, pod))

    def list(self, labels: str = "", fields: str = "") -> Listing:
        found = self._run(
            self._core.list_namespaced_pod(NAMESPACE, label_selector=labels, field_selector=fields)
        )
        names = [pod.metadata.name for pod in found.items]
        return Listing(names, found.metadata.resource_version)

    def paged(self, labels: str, limit: int) -> Iterator[str]:
        more: dict[str, str] = {}
        while True:
            page = self._run(
                self._core.list_namespaced_pod(
                    NAMESPACE, label_selector=labels, limit=limit, **more
                )
            )
            assert len(page.items) <= limit
            yield from (pod.metadata.name for pod in page.items)
            if not page.metadata._continue:
                return
            more = {"_continue": page.metadata._continue}

    def patch(self, name: str, kind: str, body: Any) -> Tree:
        return self._tree(
            self._core.patch_namespaced_pod(name, NAMESPACE, body, _content_type=kind)
        )

    def resize(self, name: str, kind: str, body: Any) -> Tree:
        return self._tree(
            self._core.patch_namespaced_pod_resize(name, NAMESPACE, body, _content_type=kind)
        )

    def delete(self, name: str) -> None:
        self._run(self._core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0))

    def watch(self, labels: str, version: str) -> Iterator[Change]:
        changes = self._changes(labels, version)
        try:
            while True:
                try:
                    yield self._run(anext(changes))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(_closed(changes))

    async def _changes(self, labels: str, version: str) -> AsyncIterator[Change]:
        async with watch.Watch().stream(
            self._core.list_namespaced_pod,
            NAMESPACE,
            label_selector=labels,
            resource_version=version,
            timeout_seconds=30,
        ) as stream:
            async for event in stream:
                metadata = event["object"].metadata
                yield Change(
                    event["type"], metadata.name, metadata.resource_version, event["raw_object"]
                )

    def pod_metrics(self) -> list[Tree]:
        found = self._run(
            self._objects.list_namespaced_custom_object(
                "metrics.k8s.io", "v1beta1", NAMESPACE, "pods"
            )
        )
        items: list[Tree] = found["items"]
        return items

    def _tree(self, asking: Coroutine[Any, Any, Any]) -> Tree:
        tree: Tree = self._client.sanitize_for_serialization(self._run(asking))
        return tree

    def _run(self, asking: Any) -> Any:
        try:
            return self._runner.run(_awaited(asking))
        except ApiException as refusal:
            reason = str(refusal.reason)
            with contextlib.suppress(TypeError, ValueError):
                reason = json.loads(refusal.body)["reason"]
            raise RefusedError(refusal.status, reason.partition(":")[0]) from None


async def _awaited(asking: Any) -> Any:
    return await asking


async def _closed(changes: Any) -> None:
    await changes.aclose()
