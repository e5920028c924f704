"""The scale of a kind that has replicas: what clients read and write at its subresource."""

from __future__ import annotations

from livesize.api.schema.fields import Message, integer, object_of, string
from livesize.api.schema.meta import TypedObject

AUTOSCALING = "io.k8s.api.autoscaling.v1"


class ScaleSpec(Message, package=AUTOSCALING):
    replicas = integer(1)


class ScaleStatus(Message, package=AUTOSCALING):
    replicas = integer(1)
    selector = string(2)


class Scale(TypedObject, package=AUTOSCALING):
    spec = object_of(ScaleSpec, 2)
    status = object_of(ScaleStatus, 3)
