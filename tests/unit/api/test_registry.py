"""The registry of kinds: each name once, and closed when serving begins."""

from __future__ import annotations

import pytest

from livesize.api.kinds.kind import Kind
from livesize.api.kinds.pod import POD, PODS
from livesize.api.kinds.registry import REGISTRY, Registry, RegistryError
from livesize.api.kinds.resource import Resource

WIDGETS = Resource("example.dev", "v1", "widgets", "Widget", True)


def test_a_kind_is_found_by_resource_plural_and_kind() -> None:
    assert REGISTRY.kind_of(PODS) is POD
    assert REGISTRY.find_plural("", "pods") is PODS
    assert REGISTRY.find_kind("v1", "Pod") is PODS
    assert REGISTRY.find_plural("", "widgets") is None


def test_what_is_computed_for_each_request_is_served_but_not_stored() -> None:
    stored = REGISTRY.stored()
    computed = [one.kind for one in REGISTRY.served() if one not in stored]
    assert "PodMetrics" in computed
    assert "SelfSubjectReview" in computed
    assert "Pod" not in computed


def test_one_more_can_be_registered_until_the_list_is_sealed() -> None:
    registry = Registry([POD])
    widget = Kind(WIDGETS)
    registry.register(widget)
    assert registry.kind_of(WIDGETS) is widget
    assert registry.stored() == (PODS, WIDGETS)
    registry.seal()
    with pytest.raises(RegistryError, match="too late"):
        registry.register(Kind(Resource("", "v1", "gadgets", "Gadget", True)))


def test_a_name_is_taken_once() -> None:
    registry = Registry([Kind(WIDGETS)])
    for other in (
        Resource("example.dev", "v1", "widgets", "Other", True),
        Resource("example.dev", "v1", "others", "Widget", True),
    ):
        with pytest.raises(RegistryError, match="taken"):
            registry.register(Kind(other))
