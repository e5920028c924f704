"""Objects that the API server makes by itself: in every namespace the ServiceAccount ``default``
and the ConfigMap with the cluster's CA, in ``default`` the Service ``kubernetes``, the two
priority classes of the system, and the class of storage ``local``. Clients wait for
these, so they come again when they are deleted.

An API server brings their content up to date only when it starts: two that do not agree would
otherwise correct each other for ever.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.priority_class import PRIORITY_CLASSES, SYSTEM_PRIORITIES
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.service import SERVICES
from livesize.api.kinds.service_account import SERVICE_ACCOUNTS
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.objects import Object, lookup, name_of
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.api.storage import (
    DEFAULT_CLASS,
    LOCAL_CLASS,
    LOCAL_PROVISIONER,
    BindingMode,
    ReclaimPolicy,
)
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.request_types import Target
from livesize.apiserver.service import ApiService
from livesize.machinery.telemetry import get_logger

_log = get_logger("apiserver.bootstrap_objects")
_IDENTITY = Identity("system:furnishing", Role.ADMIN)

ROOT_CA = "kube-root-ca.crt"
BOOTSTRAP_KINDS = (SERVICE_ACCOUNTS, CONFIG_MAPS, SERVICES)
_ABOUT_CA = "The certificate authority of this cluster's API server."

_LOCAL: Object = {
    "metadata": {"name": LOCAL_CLASS, "annotations": {DEFAULT_CLASS: "true"}},
    "provisioner": LOCAL_PROVISIONER,
    "reclaimPolicy": ReclaimPolicy.DELETE.value,
    "volumeBindingMode": BindingMode.FIRST_CONSUMER.value,
    "allowVolumeExpansion": True,
}


class BootstrapObjects(msgspec.Struct, frozen=True):
    """``ca`` is the certificate as PEM, ``host`` and ``port`` where the API server listens."""

    ca: str = ""
    host: str = "127.0.0.1"
    port: int = 443


async def bootstrap_cluster(service: ApiService) -> None:
    for name, value in sorted(SYSTEM_PRIORITIES.items()):
        description = "Used for what the cluster needs to work."
        made = {"metadata": {"name": name}, "value": value, "description": description}
        await _ensure(service, PRIORITY_CLASSES, "", made)
    await _ensure(service, STORAGE_CLASSES, "", _LOCAL)


def is_bootstrapped(cache: ObjectsCache, name: str) -> bool:
    """Everything is there."""
    return (
        cache.get(SERVICE_ACCOUNTS, key_of(SERVICE_ACCOUNTS, name, "default")) is not None
        and cache.get(CONFIG_MAPS, key_of(CONFIG_MAPS, name, ROOT_CA)) is not None
        and (
            name != "default"
            or cache.get(SERVICES, key_of(SERVICES, name, "kubernetes")) is not None
        )
    )


async def bootstrap_namespace(
    service: ApiService, name: str, bootstrap: BootstrapObjects, *, renew: bool = False
) -> None:
    """Make what is missing, unless the namespace is on its way out; with ``renew`` also correct
    what says something else."""
    record = service.cache.get(NAMESPACES, key_of(NAMESPACES, "", name))
    if record is None or lookup(record.stored, "metadata", "deletionTimestamp"):
        return
    for resource, wanted in _objects_of(name, bootstrap):
        try:
            await _ensure(service, resource, name, wanted, renew=renew)
        except StatusError as error:
            # A quota may forbid it, or the namespace has just gone: the next change tells.
            _log.warning("not furnished", namespace=name, object=name_of(wanted), reason=str(error))


def _objects_of(name: str, bootstrap: BootstrapObjects) -> Iterator[tuple[Resource, Object]]:
    yield SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}
    annotations = {"kubernetes.io/description": _ABOUT_CA}
    metadata = {"name": ROOT_CA, "annotations": annotations}
    yield CONFIG_MAPS, {"metadata": metadata, "data": {"ca.crt": bootstrap.ca}}
    if name == "default":
        yield SERVICES, _kubernetes(bootstrap)


def _kubernetes(bootstrap: BootstrapObjects) -> Object:
    address = _address(bootstrap.host)
    port = {"name": "https", "port": 443, "targetPort": bootstrap.port, "protocol": "TCP"}
    labels = {"component": "apiserver", "provider": "kubernetes"}
    spec = {
        "type": "ClusterIP",
        "clusterIP": str(address),
        "clusterIPs": [str(address)],
        "ipFamilies": [f"IPv{address.version}"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [port],
    }
    return {"metadata": {"name": "kubernetes", "labels": labels}, "spec": spec}


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address clients on this machine reach; every one (0.0.0.0) includes the loopback."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ipaddress.IPv4Address("127.0.0.1")
    if not address.is_unspecified:
        return address
    return ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")


async def _ensure(
    service: ApiService, resource: Resource, namespace: str, wanted: Object, *, renew: bool = False
) -> None:
    record = service.cache.get(resource, key_of(resource, namespace, name_of(wanted)))
    if record is None:
        try:
            await service.create(_IDENTITY, resource, namespace, wanted)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
        return
    changed = {
        part: value
        for part, value in wanted.items()
        if renew and part in ("data", "spec") and not _says(record.stored.get(part), value)
    }
    if changed:
        target = Target(resource, namespace, name_of(wanted))
        await service.patch(_IDENTITY, target, changed, PatchType.MERGE)


def _says(stored: Object | None, wanted: Object) -> bool:
    return stored is not None and all(stored.get(key) == value for key, value in wanted.items())
