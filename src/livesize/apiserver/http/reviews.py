"""POST of a review: who am I, may I do this, what may I do. Nothing is stored."""

from __future__ import annotations

from typing import Any

from livesize.api.errors import method_not_allowed
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.reviews import ACCESS_REVIEWS, REVIEWS, RULES_REVIEWS
from livesize.api.objects import Object
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.reviews import (
    PathAccess,
    access_status,
    allows_path,
    check_review,
    parse_access,
    rules_of,
    user_of,
)
from livesize.apiserver.http.requests import Request
from livesize.apiserver.http.responses import Response, json_answer
from livesize.apiserver.service import ApiService

_BY_PATH = {resource.path(): resource for resource in REVIEWS}


def review_at(head: Request) -> Resource | None:
    """Which review is posted to this path; raises 405 for another method."""
    resource = _BY_PATH.get(head.path)
    if resource is not None and head.method != "POST":
        raise method_not_allowed()
    return resource


async def answer_review(
    service: ApiService, identity: Identity, resource: Resource, body: Any
) -> Response:
    review = check_review(resource, body)
    if resource == ACCESS_REVIEWS:
        allowed = await _is_allowed(service, identity, review)
        status = access_status(identity, allowed)
    elif resource == RULES_REVIEWS:
        status = rules_of(identity, review)
    else:
        status = user_of(identity)
    answered: Object = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"creationTimestamp": None},
    }
    if review.get("spec"):
        answered["spec"] = review["spec"]
    return json_answer({**answered, "status": status}, 201)


async def _is_allowed(service: ApiService, identity: Identity, review: Object) -> bool:
    reviewed = parse_access(review)
    if isinstance(reviewed, PathAccess):
        return allows_path(identity, reviewed)
    if reviewed[0].resource in REVIEWS:
        return identity.role is Role.ADMIN or [one.verb for one in reviewed] == ["create"]
    for access in reviewed:
        if not await service.allows(identity, access):
            return False
    return True
