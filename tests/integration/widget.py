"""Widgets: a kind that only this file knows. It stands for every kind that comes.

``python -m integration.widget FOLDER`` serves it, until its standard input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from livesize.api import roles
from livesize.api.columns import AGE, NAME, Column, at
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS, scale
from livesize.api.objects import Object, lookup
from livesize.api.pod_template import default_pod_template
from livesize.api.quota_rule import counted_as
from livesize.api.schema.fields import Message, integer, list_of, object_of, string
from livesize.api.schema.meta import LabelSelector, TypedObject
from livesize.api.schema.pod_template import PodTemplateSpec
from livesize.api.validation.pod import validate_pod_template

WIDGETS = Resource("shop.example", "v1", "widgets", "Widget", True, "widget", ("wd",), ("all",))
PACKAGE = "example.shop.v1"


class WidgetPart(Message, package=PACKAGE):
    """A part of a widget."""

    name = string(1, description="Parts are told from each other by it.")
    color = string(2, description="What it looks like.")


class WidgetSpec(Message, package=PACKAGE):
    replicas = integer(1, keeps_zero=True, description="How many of them there are to be.")
    parts = list_of(WidgetPart, 2, key="name")
    selector = object_of(LabelSelector, 3)
    template = object_of(PodTemplateSpec, 4)


class WidgetStatus(Message, package=PACKAGE):
    replicas = integer(1)


class Widget(TypedObject, package=PACKAGE):
    """Something that is sold."""

    spec = object_of(WidgetSpec, 2)
    status = object_of(WidgetStatus, 3)


def default_widget(widget: Object) -> Object:
    spec = {"replicas": 1, **(widget.get("spec") or {})}
    if isinstance(spec.get("template"), dict):
        spec["template"] = default_pod_template(spec["template"])
    return {**widget, "spec": spec}


def validate_widget(widget: Object) -> list[FieldError]:
    replicas, template = widget["spec"]["replicas"], lookup(widget, "spec", "template")
    errors = [] if template is None else validate_pod_template(template, "spec.template")
    if replicas > 100:
        detail = "the shop has room for 100"
        errors.append(FieldError(FieldErrorKind.INVALID, "spec.replicas", detail, replicas))
    return errors


WIDGET = Kind(
    WIDGETS,
    shape=Widget,
    defaults=default_widget,
    validate=validate_widget,
    subresources={"scale": scale(), "status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    has_generation=True,
    roles=roles.combine(roles.EDITED, roles.STATUS, roles.SCALE),
    selectable_fields=("spec.replicas",),
    quota=counted_as(WIDGETS.plural),
    columns=(
        NAME,
        Column("Desired", at("spec", "replicas"), "integer"),
        Column("Current", at("status", "replicas", default="0"), "integer"),
        AGE,
    ),
)


def serve(folder: Path) -> None:
    REGISTRY.register(WIDGET)
    from integration.test_apiserver_kubectl import Cluster

    with Cluster(folder):
        print("serving", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
