"""What a LIST selects and answers, and what a watch tells: server and client share these types."""

from __future__ import annotations

import enum

import msgspec

from livesize.api.objects import Object


class WatchEventType(enum.StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, frozen=True):
    type: WatchEventType
    object: Object


INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial events of a watch."""


def ends_initial_events(event: WatchEvent) -> bool:
    if event.type is not WatchEventType.BOOKMARK:
        return False
    annotations = event.object["metadata"].get("annotations") or {}
    return annotations.get(INITIAL_EVENTS_END) == "true"


class ObjectList(msgspec.Struct, frozen=True):
    items: tuple[Object, ...]
    resource_version: str
    continue_token: str = ""


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a resource: all namespaces when ``namespace`` is empty."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = Selection()
