"""Reads a LIST page by page, so that neither side holds the whole answer at once.

All pages show one moment. A server keeps a moment for a while only: where it answers 410 in the
middle, ``list_all`` begins again, and asks for everything in one answer, which cannot expire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection
from livesize.api.objects import Object
from livesize.client.interface import Client

PAGE_OBJECTS = 500
"""As kubectl and client-go."""


async def read_pages(
    client: Client,
    resource: Resource,
    selection: Selection = EVERYTHING,
    *,
    page_objects: int = PAGE_OBJECTS,
) -> AsyncIterator[ObjectList]:
    """One page after the other. Raises StatusError 410 when the server has let their moment go."""
    page = await client.list(resource, selection, limit=page_objects)
    yield page
    while page.continue_token:
        page = await client.list(
            resource, selection, limit=page_objects, continue_token=page.continue_token
        )
        yield page


async def list_all(
    client: Client,
    resource: Resource,
    selection: Selection = EVERYTHING,
    *,
    page_objects: int = PAGE_OBJECTS,
) -> ObjectList:
    """All objects of the selection, as they were at one moment."""
    items: list[Object] = []
    version = ""
    try:
        async for page in read_pages(client, resource, selection, page_objects=page_objects):
            items += page.items
            version = page.resource_version
    except StatusError as refusal:
        if refusal.code != 410 or not items:
            raise
        return await client.list(resource, selection)
    return ObjectList(tuple(items), version)
