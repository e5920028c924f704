"""Watches services and the pods that name one, and writes to the pods who their peers are."""

from __future__ import annotations

from collections.abc import Iterator

from livesize.api.kinds.pod import PODS
from livesize.api.kinds.service import SERVICES
from livesize.api.objects import Object, ObjectKey, namespace_of
from livesize.api.peer_names import PEERS, hostname_of, subdomain_of
from livesize.api.resize_state import is_terminal
from livesize.client.informer import Delta
from livesize.controllers.headless_names.plan import address_of, plan_peers
from livesize.controllers.kit.batches import at_once
from livesize.controllers.kit.caches import Index
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Done, Result
from livesize.controllers.kit.watches import After, Watch, own_key
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.context import Context

GATHER_SECONDS = 0.1
"""Pods that come at once are told at once."""


def headless_names_controller(_context: Context) -> Controller[ObjectKey]:
    return Controller(
        name="headless_names",
        component="endpoint-controller",
        watches=(
            Watch(SERVICES, own_key),
            Watch(PODS, _service_of, once_there_is=SERVICES),
        ),
        reconcile=_reconcile,
    )


def _services_named(pod: Object) -> tuple[str, ...]:
    service = subdomain_of(pod)
    return (f"{namespace_of(pod)}/{service}",) if service else ()


BY_SERVICE = Index("service", _services_named)


def _service_of(delta: Delta, _read: Reader) -> Iterator[After[ObjectKey]]:
    if subdomain_of(delta.object) and _told(delta.old) != _told(delta.new):
        key = namespace_of(delta.object), subdomain_of(delta.object)
        yield After(key, GATHER_SECONDS)


async def _reconcile(key: ObjectKey, read: Reader, write: ApiWriter) -> Result:
    namespace, name = key
    service = read.get(SERVICES, name, namespace)
    pods = read.select(PODS, BY_SERVICE, f"{namespace}/{name}")

    async def tell(told: tuple[Object, str]) -> None:
        pod, text = told
        annotations = {"annotations": {PEERS: text or None}}
        await write.patch(PODS, pod, {"metadata": annotations}, any_version=True)

    await at_once(plan_peers(service, pods), tell)
    return Done()


def _told(pod: Object | None) -> tuple[object, ...] | None:
    """All of a pod that its peers are told, and what it is told itself."""
    if pod is None:
        return None
    metadata = pod["metadata"]
    peers = (metadata.get("annotations") or {}).get(PEERS)
    return address_of(pod), hostname_of(pod), metadata.get("labels"), is_terminal(pod), peers
