"""Kinds that are asked and answered, and never stored: reviews of who one is and what one may."""

from __future__ import annotations

from livesize.api.kinds import Resource

_CREATE = ("create",)

ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    False,
    "selfsubjectaccessreview",
    verbs=_CREATE,
)
RULES_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectrulesreviews",
    "SelfSubjectRulesReview",
    False,
    "selfsubjectrulesreview",
    verbs=_CREATE,
)
SELF_REVIEWS = Resource(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "SelfSubjectReview",
    False,
    "selfsubjectreview",
    verbs=_CREATE,
)

REVIEWS: tuple[Resource, ...] = (ACCESS_REVIEWS, RULES_REVIEWS, SELF_REVIEWS)
