"""The kinds that the API serves: the one list of them, and how each is found.

A kind is registered before the API server starts; ``seal`` closes the list, because routes, caches
and documents are made from it then.
"""

from __future__ import annotations

from collections.abc import Iterable

from livesize.api.kinds.config_map import CONFIG_MAP
from livesize.api.kinds.controller_revision import CONTROLLER_REVISION
from livesize.api.kinds.deployment import DEPLOYMENT
from livesize.api.kinds.event import EVENT
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.lease import LEASE
from livesize.api.kinds.limit_range import LIMIT_RANGE
from livesize.api.kinds.metrics import NODE_METRIC, POD_METRIC
from livesize.api.kinds.namespace import NAMESPACE
from livesize.api.kinds.node import NODE
from livesize.api.kinds.persistent_volume import VOLUME
from livesize.api.kinds.persistent_volume_claim import CLAIM
from livesize.api.kinds.pod import POD
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGET
from livesize.api.kinds.priority_class import PRIORITY_CLASS
from livesize.api.kinds.replica_set import REPLICA_SET
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTA
from livesize.api.kinds.reviews import ACCESS_REVIEW, RULES_REVIEW, SELF_REVIEW
from livesize.api.kinds.secret import SECRET
from livesize.api.kinds.service import SERVICE
from livesize.api.kinds.service_account import SERVICE_ACCOUNT
from livesize.api.kinds.stateful_set import STATEFUL_SET
from livesize.api.kinds.storage_class import STORAGE_CLASS


class RegistryError(ValueError):
    """A kind that cannot be registered: its names are taken, or the list is sealed."""


class Registry:
    """Kinds by their resource, by path, by group and plural, and by apiVersion and kind."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._by_resource: dict[Resource, Kind] = {}
        self._by_plural: dict[tuple[str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self._by_path: dict[tuple[str, str], Resource] = {}
        self._stored: tuple[Resource, ...] = ()
        self._sealed = False
        self.kind_of = self._by_resource.__getitem__
        self.find = self._by_resource.get
        for kind in kinds:
            self.register(kind)

    def register(self, kind: Kind) -> None:
        resource = kind.resource
        if self._sealed:
            raise RegistryError(f"{resource.kind} comes too late: register it before serving")
        plural, named = (resource.group, resource.plural), (resource.api_version, resource.kind)
        if plural in self._by_plural or named in self._by_kind:
            raise RegistryError(f"{resource.kind}: {resource.prefix}/{resource.plural} is taken")
        self._by_resource[resource] = kind
        self._by_plural[plural] = self._by_kind[named] = resource
        self._by_path[resource.prefix, resource.plural] = resource
        if kind.is_stored:
            self._stored = (*self._stored, resource)

    def seal(self) -> None:
        """From here on the list stays as it is."""
        self._sealed = True

    def find_plural(self, group: str, plural: str) -> Resource | None:
        return self._by_plural.get((group, plural))

    def find_kind(self, api_version: str, kind: str) -> Resource | None:
        return self._by_kind.get((api_version, kind))

    def find_path(self, prefix: str, plural: str) -> Resource | None:
        """``prefix`` is the path of the group and version."""
        return self._by_path.get((prefix, plural))

    def stored(self) -> tuple[Resource, ...]:
        """What clients read and write, in the order of registration."""
        return self._stored

    def served(self) -> tuple[Resource, ...]:
        """Everything, with what is computed for each request."""
        return tuple(self._by_resource)


REGISTRY = Registry(
    (
        NAMESPACE,
        NODE,
        POD,
        EVENT,
        LEASE,
        RESOURCE_QUOTA,
        LIMIT_RANGE,
        SERVICE_ACCOUNT,
        CONFIG_MAP,
        SECRET,
        SERVICE,
        DISRUPTION_BUDGET,
        PRIORITY_CLASS,
        CLAIM,
        VOLUME,
        STORAGE_CLASS,
        STATEFUL_SET,
        DEPLOYMENT,
        REPLICA_SET,
        CONTROLLER_REVISION,
        ACCESS_REVIEW,
        RULES_REVIEW,
        SELF_REVIEW,
        NODE_METRIC,
        POD_METRIC,
    )
)
kind_of = REGISTRY.kind_of
