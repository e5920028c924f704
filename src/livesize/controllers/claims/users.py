"""Which pods use which claims, and where they are; as far as the watch has told. Does no IO."""

from __future__ import annotations

import msgspec

from livesize.api.objects import Object, ObjectKey, lookup, name_of, namespace_of, uid_of
from livesize.api.resize_state import is_terminal
from livesize.api.storage import claims_of


class User(msgspec.Struct, frozen=True, order=True):
    """A pod that has its node; the first one counts where a claim has no volume yet. One that has
    ended holds its claims, but nothing is made for it any more."""

    has_ended: bool
    created_at: str
    pod: str
    node: str


class ClaimUsers:
    def __init__(self) -> None:
        self._users: dict[ObjectKey, dict[str, User]] = {}
        self._claims: dict[str, tuple[ObjectKey, ...]] = {}

    def see(self, pod: Object) -> tuple[ObjectKey, ...]:
        """Take in a pod's newest state; return the claims for which something has changed."""
        node = lookup(pod, "spec", "nodeName", default="")
        if not node:
            return ()
        claims = tuple((namespace_of(pod), name) for name in claims_of(pod))
        if not claims:
            return ()
        created = str(lookup(pod, "metadata", "creationTimestamp", default=""))
        user, uid = User(is_terminal(pod), created, name_of(pod), node), uid_of(pod)
        self._claims[uid] = claims
        changed = [one for one in claims if self._users.get(one, {}).get(uid) != user]
        for claim in changed:
            self._users.setdefault(claim, {})[uid] = user
        return tuple(changed)

    def drop(self, pod: Object) -> tuple[ObjectKey, ...]:
        uid = uid_of(pod)
        claims = self._claims.pop(uid, ())
        for claim in claims:
            users = self._users[claim]
            del users[uid]
            if not users:
                del self._users[claim]
        return claims

    def is_used(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._users

    def node(self, namespace: str, name: str) -> str:
        """Where the claim's first pod is; empty where none is anywhere."""
        users = self._users.get((namespace, name), {}).values()
        alive = [user for user in users if not user.has_ended]
        return min(alive).node if alive else ""
