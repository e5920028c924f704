"""Types of requests to the service, without HTTP: which object, with which options."""

from __future__ import annotations

import msgspec

from livesize.api.kinds.resource import Resource
from livesize.apiserver.auth.authorize import Access


class Target(msgspec.Struct, frozen=True):
    """One object, or one of its subresources."""

    resource: Resource
    namespace: str
    name: str
    subresource: str = ""

    def access(self, verb: str) -> Access:
        return Access(verb, self.resource, self.subresource, self.namespace, self.name)


class ListOptions(msgspec.Struct, frozen=True):
    """Which objects, and as of when. ``version`` as on the wire: empty is the newest."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    version: str = ""
    exact: bool = False
    limit: int = 0
    continue_token: str = ""


class WatchOptions(msgspec.Struct, frozen=True):
    """``initial`` None: as ``version`` implies; ``bookmarks``: the client understands them."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    version: str = ""
    initial: bool | None = None
    bookmarks: bool = False
