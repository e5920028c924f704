"""Amounts of resources: what containers, virtual machines and claims ask for."""

from __future__ import annotations

from livesize.api.schema.fields import (
    Message,
    anything,
    integer,
    list_of,
    quantities,
    quantity,
    string,
    string_map,
)
from livesize.api.schema.support import CLAIMS, used


class ResourceClaim(Message):
    name = string(1)
    request = string(2)


class ResourceRequirements(Message):
    limits = quantities(
        1, description="What the container can use at most.", support=used("api.resources")
    )
    requests = quantities(
        2,
        description="What is scheduled and kept free for the container.",
        support=used("api.resources"),
    )
    claims = list_of(ResourceClaim, 3, support=CLAIMS)
    resizePolicy = string_map(
        description="By resource: RestartOnly, ContainerRestartOnly or LiveResizeable.",
        support=used("api.resize_policy"),
    )


class ContainerResizePolicy(Message):
    resourceName = string(
        1,
        description="The resource this is about: cpu or memory.",
        support=used("api.resize_policy"),
    )
    restartPolicy = string(
        2,
        description=(
            "NotRequired: the container goes on while it is resized. RestartContainer: it"
            " is restarted with the new size."
        ),
        support=used("api.resize_policy"),
    )
    name = anything(support=used("api.resize_policy"))
    policy = anything(support=used("api.resize_policy"))


class VolumeResourceRequirements(Message):
    limits = quantities(1)
    requests = quantities(2)


class CellMemory(Message):
    id = integer()
    memory = quantity()


class ContainerSize(Message):
    """One container's resources by name: desired, allocated and IBM's newResources; of a virtual
    machine with NUMA cells also the memory of each."""

    name = string()
    requests = quantities()
    limits = quantities()
    cells = list_of(CellMemory, key="id")
