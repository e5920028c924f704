"""The official Python client."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

from clients.interface import NAMESPACE, Change, Listing, RefusedError, Tree


class Official:
    def __init__(self, kubeconfig: Path) -> None:
        self._client = config.new_client_from_config(str(kubeconfig))
        self._core = client.CoreV1Api(self._client)
        self._objects = client.CustomObjectsApi(self._client)

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    def create(self, pod: Tree) -> Tree:
        return self._tree(lambda: self._core.create_namespaced_pod(NAMESPACE, pod))

    def get(self, name: str) -> Tree:
        return self._tree(lambda: self._core.read_namespaced_pod(name, NAMESPACE))

    def replace(self, pod: Tree) -> Tree:
        name = pod["metadata"]["name"]
        return self._tree(lambda: self._core.replace_namespaced_pod(name, NAMESPACE, pod))

    def list(self, labels: str = "", fields: str = "") -> Listing:
        with refusals():
            found = self._core.list_namespaced_pod(
                NAMESPACE, label_selector=labels, field_selector=fields
            )
        names = [pod.metadata.name for pod in found.items]
        return Listing(names, found.metadata.resource_version)

    def paged(self, labels: str, limit: int) -> Iterator[str]:
        token = None
        while token != "":
            page = self._core.list_namespaced_pod(
                NAMESPACE, label_selector=labels, limit=limit, _continue=token
            )
            assert len(page.items) <= limit
            yield from (pod.metadata.name for pod in page.items)
            token = page.metadata._continue or ""

    def patch(self, name: str, kind: str, body: Any) -> Tree:
        return self._tree(
            lambda: self._core.patch_namespaced_pod(name, NAMESPACE, body, _content_type=kind)
        )

    def resize(self, name: str, kind: str, body: Any) -> Tree:
        return self._tree(
            lambda: self._core.patch_namespaced_pod_resize(
                name, NAMESPACE, body, _content_type=kind
            )
        )

    def delete(self, name: str) -> None:
        with refusals():
            self._core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)

    def watch(self, labels: str, version: str) -> Iterator[Change]:
        watching = watch.Watch()
        stream = watching.stream(
            self._core.list_namespaced_pod,
            NAMESPACE,
            label_selector=labels,
            resource_version=version,
            timeout_seconds=30,
        )
        with refusals(), contextlib.closing(stream):
            for event in stream:
                metadata = event["object"].metadata
                yield Change(
                    event["type"], metadata.name, metadata.resource_version, event["raw_object"]
                )

    def pod_metrics(self) -> list[Tree]:
        with refusals():
            found = self._objects.list_namespaced_custom_object(
                "metrics.k8s.io", "v1beta1", NAMESPACE, "pods"
            )
        items: list[Tree] = found["items"]
        return items

    def _tree(self, ask: Callable[[], Any]) -> Tree:
        with refusals():
            tree: Tree = self._client.sanitize_for_serialization(ask())
        return tree


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except ApiException as refusal:
        reason = refusal.reason
        with contextlib.suppress(TypeError, ValueError):
            reason = json.loads(refusal.body)["reason"]
        raise RefusedError(refusal.status, reason.partition(":")[0]) from None
