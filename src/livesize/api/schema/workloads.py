"""What the messages of apps/v1 have in common."""

from __future__ import annotations

from livesize.api.schema.fields import Message, Type, integer, object_of, scalar, string
from livesize.api.schema.meta import LabelSelector
from livesize.api.schema.pod_template import PodTemplateSpec

APPS = "io.k8s.api.apps.v1"


class WorkloadCondition(Message, package=APPS):
    """The conditions of two kinds have these fields, under names of their own."""

    type = string(1)
    status = string(2)
    lastTransitionTime = scalar(Type.TIME, 3)
    reason = string(4)
    message = string(5)


class WorkloadSpec(Message, package=APPS):
    """The specs of three kinds begin with these fields."""

    replicas = integer(
        1, keeps_zero=True, description="How many pods there are to be; 1 if absent."
    )
    selector = object_of(
        LabelSelector,
        2,
        keeps_zero=True,
        description="Which pods are its own; the template has these labels. It never changes.",
    )
    template = object_of(PodTemplateSpec, 3, description="What its pods are made from.")
