"""Acting as another: Impersonate-User and Impersonate-Group, for admins alone. Pure.

An admin becomes who is named. Groups say the role, as those of a certificate do; without any it is
the role of the token or certificate of that name. Who would have no role is refused, and so are
uids and further attributes, which nothing here reads. ``kubectl --as=NAME --as-group=GROUP``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from livesize.api.errors import StatusError, bad_request
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import AUTHENTICATED, Identity, identity_of_groups

PREFIX = "impersonate-"
_USER, _GROUP, _UID, _EXTRA = (f"{PREFIX}{word}" for word in ("user", "group", "uid", "extra-"))


class Impersonation(msgspec.Struct, frozen=True):
    user: str
    groups: tuple[str, ...] = ()


def read_impersonation(headers: Iterable[tuple[bytes, bytes]]) -> Impersonation | None:
    """Whom the headers of a request ask to be; raises what cannot be asked."""
    found = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name.startswith(PREFIX.encode())
    ]
    if not found:
        return None
    users = [value for name, value in found if name == _USER]
    groups = tuple(value for name, value in found if name == _GROUP)
    if len(users) != 1 or not users[0]:
        raise bad_request("to act as another, name one user: Impersonate-User")
    for name, _ in found:
        if name not in (_USER, _GROUP):
            what = "uids" if name == _UID else f"userextras/{name.removeprefix(_EXTRA)}"
            raise _forbidden(f"{what} is forbidden: only users and groups are impersonated here")
    return Impersonation(users[0], groups)


def become(
    identity: Identity, claim: Impersonation, known: Callable[[str], Identity | None]
) -> Identity:
    """Who asks from now on; ``known`` finds whose token or certificate has a name. Raises 403."""
    if identity.role is not Role.ADMIN:
        raise _forbidden(
            f'users "{claim.user}" is forbidden: User "{identity.name}" cannot impersonate resource'
            ' "users" in API group "" at the cluster scope'
        )
    groups = [group for group in claim.groups if group != AUTHENTICATED]
    other = identity_of_groups(claim.user, groups) if groups else known(claim.user)
    if other is not None:
        return other
    why = (
        f"the groups {', '.join(groups)} stand for no role, or for several"
        if groups
        else "no token or certificate has this name"
    )
    raise _forbidden(
        f'users "{claim.user}" is forbidden: {why}, so it may do nothing; name a group that is a'
        " role, for instance --as-group=livesize:viewer"
    )


def _forbidden(message: str) -> StatusError:
    return StatusError(403, "Forbidden", message)
