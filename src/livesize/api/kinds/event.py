"""Events: what happened to an object, for people to read."""

from __future__ import annotations

from livesize.api.columns import (
    Column,
    age,
    at,
    since,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object, lookup, name_of
from livesize.api.roles import ALL, CHANGE, CREATE, READ, Role
from livesize.api.schema.fields import Message, Type, integer, object_of, scalar, string
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.references import ObjectReference

EVENTS = Resource("", "v1", "events", "Event", True, "event", ("ev",))


class EventSource(Message):
    component = string(1)
    host = string(2)


class EventSeries(Message):
    count = integer(1)
    lastObservedTime = scalar(Type.MICRO_TIME, 2)


class Event(TypedObject):
    involvedObject = object_of(ObjectReference, 2, is_atomic=True)
    reason = string(3)
    message = string(4)
    source = object_of(EventSource, 5)
    firstTimestamp = scalar(Type.TIME, 6)
    lastTimestamp = scalar(Type.TIME, 7)
    count = integer(8)
    type = string(9, "Normal", "Warning")
    eventTime = scalar(Type.MICRO_TIME, 10)
    series = object_of(EventSeries, 11)
    action = string(12)
    related = object_of(ObjectReference, 13, is_atomic=True)
    reportingComponent = string(14)
    reportingInstance = string(15)


def validate_event(event: Object) -> list[FieldError]:
    """Who may write events of one namespace says nothing about objects of another."""
    about = lookup(event, "involvedObject", "namespace", default="")
    if not about or about == lookup(event, "metadata", "namespace", default=""):
        return []
    field, detail = "involvedObject.namespace", "does not match event.namespace"
    return [FieldError(FieldErrorKind.INVALID, field, detail, about)]


def _event_last_seen(event: Object, now: float) -> str:
    for path in (
        ("series", "lastObservedTime"),
        ("lastTimestamp",),
        ("eventTime",),
        ("firstTimestamp",),
    ):
        if time := lookup(event, *path):
            return since(time, now)
    return age(event, now)


def _event_object(event: Object, _now: float) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


EVENT = Kind(
    EVENTS,
    shape=Event,
    validate=validate_event,
    status=StatusWrites.ANY,
    tracks_updates=False,
    quota=None,
    collected=False,
    node_scope=NodeScope.ALL,
    roles={
        Role.VIEWER: {"": READ},
        Role.EDITOR: {"": ALL},
        Role.NODE: {"": CREATE | CHANGE},
        Role.SCHEDULER: {"": READ | CREATE | CHANGE},
        Role.CONTROLLER: {"": ALL},
        Role.APISERVER: {"": READ},
    },
    selectable_fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    columns=(
        Column("Last Seen", _event_last_seen),
        Column("Type", at("type", default="")),
        Column("Reason", at("reason", default="")),
        Column("Object", _event_object),
        Column("Message", lambda event, _now: str(event.get("message") or "").strip()),
        Column("Name", lambda event, _now: name_of(event), format="name", priority=1),
    ),
)
