"""Reviews: a client asks who it is and what it may do. They are answered, and not stored."""

from __future__ import annotations

from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource

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


REVIEWS = (ACCESS_REVIEWS, RULES_REVIEWS, SELF_REVIEWS)

ACCESS_REVIEW = Kind(ACCESS_REVIEWS, is_stored=False)
RULES_REVIEW = Kind(RULES_REVIEWS, is_stored=False)
SELF_REVIEW = Kind(SELF_REVIEWS, is_stored=False)
