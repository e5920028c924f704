"""Answers of the reviews, from the same table that authorizes requests. Pure.

``parse_access`` reads what a SelfSubjectAccessReview asks; ``rules_of`` is a SelfSubjectRulesReview
whole, ``user_of`` the person of a SelfSubjectReview.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from livesize.api.errors import FieldError, FieldErrorKind, StatusError, bad_request, invalid
from livesize.api.kinds.metrics import METRICS
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.reviews import ACCESS_REVIEWS, REVIEWS, RULES_REVIEWS
from livesize.api.objects import Object, lookup
from livesize.api.roles import ALL, Role
from livesize.apiserver.auth.authorize import Access, allows, granted
from livesize.apiserver.auth.identities import Identity

ANY = "*"
OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
PATHS_OF_ALL = (
    *("/api", "/api/*", "/apis", "/apis/*", "/metrics", "/openapi", "/openapi/*"),
    *OPEN_PATHS,
)


class PathAccess(msgspec.Struct, frozen=True):
    """A request for a path that is no object."""

    verb: str
    path: str


def parse_access(review: Object) -> tuple[Access, ...] | PathAccess:
    """What is asked; several accesses for the verb ``*``. Raises 422."""
    wanted = lookup(review, "spec", "resourceAttributes")
    path = lookup(review, "spec", "nonResourceAttributes")
    if (wanted is None) == (path is None):
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid(ACCESS_REVIEWS, "spec.resourceAttributes", detail, wanted)
    if path is not None:
        words = _words(path, ("verb", "path"))
        return PathAccess(words["verb"], words["path"])
    words = _words(wanted, ("verb", "group", "resource", "subresource", "namespace", "name"))
    resource = _resource(words["group"], words["resource"])
    verbs = sorted(ALL) if words["verb"] == ANY else [words["verb"]]
    namespace = words["namespace"] if resource.namespaced else ""
    rest = (resource, words["subresource"], namespace, words["name"])
    return tuple(Access(verb, *rest) for verb in verbs)


def allows_path(identity: Identity, access: PathAccess) -> bool:
    """Documents are read by everybody who is known; everything else is the admin's."""
    if identity.role is Role.ADMIN:
        return True
    return access.verb == "get" and any(_covers(known, access.path) for known in PATHS_OF_ALL)


def access_status(identity: Identity, allowed: bool) -> Object:
    if not allowed:
        return {"allowed": False}
    return {"allowed": True, "reason": f"the role {identity.role} of {identity.name} allows it"}


def rules_of(identity: Identity, review: Object) -> Object:
    """What the identity may do in one namespace. Raises 400 where none is named."""
    namespace = lookup(review, "spec", "namespace", default="")
    if not isinstance(namespace, str) or not namespace:
        raise bad_request("no namespace on request")
    rules: list[Object] = [_rule(("create",), one.group, [one.plural]) for one in REVIEWS]
    if identity.role is Role.ADMIN:
        rules.append(_rule((ANY,), ANY, [ANY]))
    else:
        rules += _table_rules(identity, namespace)
    everywhere = identity.role is Role.ADMIN
    paths = [ANY] if everywhere else list(PATHS_OF_ALL)
    status: Object = {
        "resourceRules": rules,
        "nonResourceRules": [{"verbs": [ANY] if everywhere else ["get"], "nonResourceURLs": paths}],
        "incomplete": False,
    }
    if identity.role is Role.NODE:
        why = (
            "a node reads only the Secrets, ConfigMaps, claims and volumes its pods use, and"
            " changes only its own"
        )
        status |= {"incomplete": True, "evaluationError": why}
    return status


def user_of(identity: Identity) -> Object:
    return {"userInfo": {"username": identity.name, "groups": list(identity.groups)}}


def check_review(resource: Resource, review: Any) -> Object:
    """The body is a review of this kind; absent kinds are filled in. Raises 400."""
    if not isinstance(review, dict):
        raise bad_request("the body must be an object")
    kind = review.get("kind") or resource.kind
    version = review.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise bad_request(
            f"{kind} in version {version!r} cannot be handled as a {resource.kind}"
            f" in version {resource.api_version!r}"
        )
    if resource != RULES_REVIEWS or isinstance(review.get("spec"), dict):
        return review
    raise bad_request("no namespace on request")


def _table_rules(identity: Identity, namespace: str) -> list[Object]:
    """One rule for each group and set of verbs, of what there really is."""
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for resource in (*REGISTRY.stored(), *METRICS):
        for subresource in ("", *kind_of(resource).subresources):
            verbs = _verbs(identity, resource, subresource, namespace)
            if verbs:
                target = Access("", resource, subresource).target
                merged.setdefault((resource.group, verbs), []).append(target)
    rules = [_rule(verbs, group, targets) for (group, verbs), targets in merged.items()]
    if namespace in identity.namespaces:
        rules.append({**_rule(("get",), "", [NAMESPACES.plural]), "resourceNames": [namespace]})
    return rules


def _verbs(
    identity: Identity, resource: Resource, subresource: str, namespace: str
) -> tuple[str, ...]:
    where = namespace if resource.namespaced else ""
    return tuple(
        verb
        for verb in sorted(granted(identity.role, resource, subresource))
        if allows(identity, Access(verb, resource, subresource, where))
    )


def _rule(verbs: tuple[str, ...], group: str, resources: list[str]) -> Object:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": resources}


def _resource(group: str, plural: str) -> Resource:
    """The served one, or one that no kind has: only an admin may do things with it."""
    return REGISTRY.find_plural(group, plural) or Resource(group, "", plural, "", True)


def _words(attributes: Any, names: tuple[str, ...]) -> Mapping[str, str]:
    if not isinstance(attributes, dict):
        raise _invalid(ACCESS_REVIEWS, "spec.resourceAttributes", "must be an object", attributes)
    words = {name: attributes.get(name) or "" for name in names}
    for name, word in words.items():
        if not isinstance(word, str):
            field = f"spec.resourceAttributes.{name}"
            raise _invalid(ACCESS_REVIEWS, field, "must be a string", word)
    return words


def _invalid(resource: Resource, field: str, detail: str, value: Any) -> StatusError:
    error = FieldError(FieldErrorKind.INVALID, field, detail, value)
    return invalid(resource.kind, resource.group, "", [error])


def _covers(known: str, path: str) -> bool:
    if known.endswith("/*"):
        return path.startswith(known[:-1])
    return path == known
