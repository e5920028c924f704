"""Subresources of a kind: which there are, what clients send there, and which rule answers."""

from __future__ import annotations

import enum

import msgspec

from livesize.api.objects import Path
from livesize.api.schema.fields import Message, Schema, schema_of
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.scale import Scale


class Transfer(enum.Enum):
    """What a client does at a subresource."""

    CHANGE = "change"
    """It reads and writes a part of the object."""
    POST = "post"
    """It posts an object of another kind, which changes this one."""
    STREAM = "stream"
    """It talks to the node of the pod; nothing is stored."""


class ScalePaths(msgspec.Struct, frozen=True):
    """Where a kind has the fields of autoscaling/v1 Scale. ``selector`` is a text or a selector of
    labels."""

    replicas: Path = ("spec", "replicas")
    status_replicas: Path = ("status", "replicas")
    selector: Path = ("spec", "selector")


class Subresource(msgspec.Struct, frozen=True):
    """``rule`` names what the API server does (livesize.apiserver.subresources.rules). ``kind``,
    ``api_version`` and ``shape`` are those of what is sent there; where ``kind`` is empty, the
    object's own."""

    rule: str
    kind: str = ""
    api_version: str = "v1"
    transfer: Transfer = Transfer.CHANGE
    verbs: tuple[str, ...] = ("get", "patch", "update")
    shape: type[Message] = TypedObject
    paths: ScalePaths | None = None

    @property
    def schema(self) -> Schema:
        return schema_of(self.shape)

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]


STATUS = Subresource("status")
"""A status that the client writes as it is."""


def scale(paths: ScalePaths | None = None) -> Subresource:
    """The number of replicas, for `kubectl scale` and autoscalers."""
    paths = paths or ScalePaths()
    return Subresource("scale", "Scale", "autoscaling/v1", shape=Scale, paths=paths)


def posted(rule: str, shape: type[Message], api_version: str = "v1") -> Subresource:
    return Subresource(rule, shape.__name__, api_version, Transfer.POST, ("create",), shape)


def streamed(kind: str = "", *, verbs: tuple[str, ...] = ("create", "get")) -> Subresource:
    return Subresource("stream", kind, transfer=Transfer.STREAM, verbs=verbs)
