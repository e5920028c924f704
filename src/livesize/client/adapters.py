"""Writes the events and leases of machinery to the API server, through a client."""

from __future__ import annotations

from livesize.api.errors import StatusError
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.lease import LEASES
from livesize.api.objects import Object, name_of, namespace_of
from livesize.client.interface import Client
from livesize.machinery.recorder import PostEvent


def event_poster(client: Client) -> PostEvent:
    """What an EventRecorder writes with: a new event is created, a repeated one patched."""

    async def post(event: Object, is_new: bool) -> None:
        if not is_new and await _raise_count(client, event):
            return
        try:
            await client.create(EVENTS, event, namespace_of(event))
        except StatusError as refusal:
            # An earlier try got through and only its answer was lost.
            if refusal.reason != "AlreadyExists" or not await _raise_count(client, event):
                raise

    return post


async def _raise_count(client: Client, event: Object) -> bool:
    """False where the event has been cleaned away."""
    patch = {"count": event["count"], "lastTimestamp": event["lastTimestamp"]}
    try:
        await client.patch(EVENTS, name_of(event), patch, namespace=namespace_of(event))
    except StatusError as refusal:
        if refusal.code == 404:
            return False
        raise
    return True


class ClientLease:
    """The LeaseRecord of machinery, stored by the API server."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def load(self) -> Object | None:
        try:
            return await self._client.get(LEASES, self._name, self._namespace)
        except StatusError as refusal:
            if refusal.code == 404:
                return None
            raise

    async def create(self, lease: Object) -> Object:
        return await self._client.create(LEASES, lease, self._namespace)

    async def update(self, lease: Object) -> Object:
        return await self._client.update(LEASES, lease)
