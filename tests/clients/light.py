"""lightkube."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType, on_error_retry

from clients.interface import NAMESPACE, Change, Listing, RefusedError, Tree

_METRICS = create_namespaced_resource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")


class Light:
    def __init__(self, kubeconfig: Path) -> None:
        known = KubeConfig.from_file(kubeconfig)
        self._client = Client(config=known, namespace=NAMESPACE, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def create(self, pod: Tree) -> Tree:
        with refusals():
            return self._client.create(Pod.from_dict(pod)).to_dict()

    def get(self, name: str) -> Tree:
        with refusals():
            return self._client.get(Pod, name).to_dict()

    def replace(self, pod: Tree) -> Tree:
        with refusals():
            return self._client.replace(Pod.from_dict(pod)).to_dict()

    def list(self, labels: str = "", fields: str = "") -> Listing:
        with refusals():
            found = self._client.list(Pod, labels=_selector(labels), fields=_selector(fields))
            names = [_metadata(pod).name or "" for pod in found]
        return Listing(names, found.resourceVersion)

    def paged(self, labels: str, limit: int) -> Iterator[str]:
        for pod in self._client.list(Pod, labels=_selector(labels), chunk_size=limit):
            yield _metadata(pod).name or ""

    def patch(self, name: str, kind: str, body: Any) -> Tree:
        with refusals():
            return self._client.patch(Pod, name, body, patch_type=PatchType(kind)).to_dict()

    def resize(self, name: str, kind: str, body: Any) -> Tree:
        with refusals():
            return self._client.patch(Pod.Resize, name, body, patch_type=PatchType(kind)).to_dict()

    def delete(self, name: str) -> None:
        with refusals():
            self._client.delete(Pod, name, grace_period=0)

    def watch(self, labels: str, version: str) -> Iterator[Change]:
        stream = self._client.watch(Pod, labels=_selector(labels), resource_version=version)
        with refusals(), contextlib.closing(stream):
            for kind, pod in stream:
                metadata = _metadata(pod)
                yield Change(
                    kind, metadata.name or "", metadata.resourceVersion or "", pod.to_dict()
                )

    def informed(self, name: str, labels: str, version: str) -> list[str]:
        """What a watch that begins again by itself has seen once it has seen ``name``."""
        stream = self._client.watch(
            Pod, labels=_selector(labels), resource_version=version, on_error=on_error_retry
        )
        seen: list[str] = []
        with contextlib.closing(stream):
            while name not in seen:
                seen.append(_metadata(next(stream)[1]).name or "")
        return seen

    def pod_metrics(self) -> list[Tree]:
        with refusals():
            return [dict(one.to_dict()) for one in self._client.list(_METRICS)]


def _selector(text: str) -> dict[str, Any]:
    return dict(part.split("=", 1) for part in text.split(",") if part)


def _metadata(pod: Pod) -> ObjectMeta:
    assert pod.metadata is not None
    return pod.metadata


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except ApiError as refusal:
        raise RefusedError(refusal.status.code, refusal.status.reason) from None
