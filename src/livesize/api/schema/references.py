"""References from one object to another."""

from __future__ import annotations

from livesize.api.schema.fields import Message, string
from livesize.api.schema.support import used


class ObjectReference(Message):
    kind = string(1)
    namespace = string(2)
    name = string(3)
    uid = string(4)
    apiVersion = string(5)
    resourceVersion = string(6)
    fieldPath = string(7)


class LocalObjectReference(Message):
    name = string(
        1,
        support=used("api.pod_references", "agent.volumes.environment", "agent.volumes.conversion"),
    )


class TypedLocalObjectReference(Message):
    apiGroup = string(1, keeps_zero=True)
    kind = string(2)
    name = string(3)


class TypedObjectReference(Message):
    apiGroup = string(1, keeps_zero=True)
    kind = string(2)
    name = string(3)
    namespace = string(4, keeps_zero=True)
