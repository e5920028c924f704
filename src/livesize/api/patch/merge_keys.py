"""Which lists a strategic merge patch merges, and by which key; every other list is replaced.

As Kubernetes has it (patchMergeKey in its types), because kubectl computes its patches with the
same table: a list merged here but replaced there could not be shortened any more. Tolerations and
taints are therefore replaced.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from livesize.api.kinds.resource import Resource

SET = ""
"""Instead of a key: the list holds plain values and is merged as a set."""


class MergeKeys(msgspec.Struct, frozen=True):
    """What is known about one field: how it is merged if it is a list, and the fields below it
    (below its elements, if it is a list)."""

    merge_key: str | None = None
    fields: Mapping[str, MergeKeys] = {}

    def below(self, field: str) -> MergeKeys:
        return self.fields.get(field, NOTHING_KNOWN)


NOTHING_KNOWN = MergeKeys()


def merge_keys(lists: Mapping[str, str]) -> MergeKeys:
    """Build the tree from list paths such as {"spec.containers.env": "name"}."""
    here = {path: key for path, key in lists.items() if path}
    names = dict.fromkeys(path.split(".", 1)[0] for path in here)
    return MergeKeys(
        merge_key=lists.get(""),
        fields={
            name: merge_keys(
                {
                    path[len(name) + 1 :]: key
                    for path, key in here.items()
                    if path == name or path.startswith(name + ".")
                }
            )
            for name in names
        },
    )


_METADATA = {"metadata.ownerReferences": "uid", "metadata.finalizers": SET}
_CONTAINER = {
    "": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
_POD_SPEC = {
    **{
        f"{containers}.{path}".rstrip("."): key
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for path, key in _CONTAINER.items()
    },
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumes": "name",
}

METADATA_MERGE_KEYS = merge_keys(_METADATA)
POD_MERGE_KEYS = merge_keys(
    {
        **_METADATA,
        **{f"spec.{path}": key for path, key in _POD_SPEC.items()},
        "status.conditions": "type",
        "status.hostIPs": "ip",
        "status.podIPs": "ip",
        "status.resourceClaimStatuses": "name",
    }
)
NODE_MERGE_KEYS = merge_keys(
    {
        **_METADATA,
        "spec.podCIDRs": SET,
        "status.addresses": "type",
        "status.conditions": "type",
    }
)
NAMESPACE_MERGE_KEYS = merge_keys({**_METADATA, "status.conditions": "type"})
EVENT_MERGE_KEYS = METADATA_MERGE_KEYS
LEASE_MERGE_KEYS = METADATA_MERGE_KEYS

SERVICE_MERGE_KEYS = merge_keys({**_METADATA, "spec.ports": "port", "status.conditions": "type"})
SERVICE_ACCOUNT_MERGE_KEYS = merge_keys(
    {**_METADATA, "secrets": "name", "imagePullSecrets": "name"}
)
DISRUPTION_BUDGET_MERGE_KEYS = merge_keys({**_METADATA, "status.conditions": "type"})
CLAIM_MERGE_KEYS = merge_keys({**_METADATA, "status.conditions": "type"})

_BY_PLURAL = {
    "pods": POD_MERGE_KEYS,
    "nodes": NODE_MERGE_KEYS,
    "namespaces": NAMESPACE_MERGE_KEYS,
    "events": EVENT_MERGE_KEYS,
    "leases": LEASE_MERGE_KEYS,
    "services": SERVICE_MERGE_KEYS,
    "serviceaccounts": SERVICE_ACCOUNT_MERGE_KEYS,
    "poddisruptionbudgets": DISRUPTION_BUDGET_MERGE_KEYS,
    "persistentvolumeclaims": CLAIM_MERGE_KEYS,
}


def merge_keys_of(resource: Resource) -> MergeKeys:
    """The table of one resource; of an unknown one, what all metadata has in common."""
    return _BY_PLURAL.get(resource.plural, METADATA_MERGE_KEYS)
