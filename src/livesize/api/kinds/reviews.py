"""Reviews: a client asks who it is and what it may do. They are answered, and not stored."""

from __future__ import annotations

from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.schema.fields import Message, object_of, string
from livesize.api.schema.meta import TypedObject

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
AUTHORIZATION = "io.k8s.api.authorization.v1"
AUTHENTICATION = "io.k8s.api.authentication.v1"


class ResourceAttributes(Message, package=AUTHORIZATION):
    namespace = string(1)
    verb = string(2)
    group = string(3)
    version = string(4)
    resource = string(5)
    subresource = string(6)
    name = string(7)


class NonResourceAttributes(Message, package=AUTHORIZATION):
    path = string(1)
    verb = string(2)


class SelfSubjectAccessReviewSpec(Message, package=AUTHORIZATION):
    resourceAttributes = object_of(ResourceAttributes, 1)
    nonResourceAttributes = object_of(NonResourceAttributes, 2)


class SelfSubjectAccessReview(TypedObject, package=AUTHORIZATION):
    spec = object_of(SelfSubjectAccessReviewSpec, 2)


class SelfSubjectRulesReviewSpec(Message, package=AUTHORIZATION):
    namespace = string(1)


class SelfSubjectRulesReview(TypedObject, package=AUTHORIZATION):
    spec = object_of(SelfSubjectRulesReviewSpec, 2)


class SelfSubjectReview(TypedObject, package=AUTHENTICATION):
    pass


REVIEWS = (ACCESS_REVIEWS, RULES_REVIEWS, SELF_REVIEWS)

ACCESS_REVIEW = Kind(ACCESS_REVIEWS, shape=SelfSubjectAccessReview, is_stored=False)
RULES_REVIEW = Kind(RULES_REVIEWS, shape=SelfSubjectRulesReview, is_stored=False)
SELF_REVIEW = Kind(SELF_REVIEWS, shape=SelfSubjectReview, is_stored=False)
