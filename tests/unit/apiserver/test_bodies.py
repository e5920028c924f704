"""YAML with too much in it is refused by its events where it can be, and by its tree at last."""

from __future__ import annotations

import pytest
import yaml

from livesize.api.entries import MAX_ENTRIES
from livesize.api.errors import StatusError
from livesize.apiserver.http.bodies import decode_yaml


def test_nothing_is_built_of_what_has_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "load", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(StatusError) as refused:
        decode_yaml(b"- a\n" * (2 * MAX_ENTRIES + 1))
    assert refused.value.code == 413


def test_what_has_few_nodes_is_counted_as_json_is() -> None:
    """A field is two nodes, an item one: a list may pass by its nodes and have too many items."""
    with pytest.raises(StatusError) as refused:
        decode_yaml(b"- a\n" * (MAX_ENTRIES + 1))
    assert refused.value.code == 413
    assert len(decode_yaml(b"- a\n" * MAX_ENTRIES)) == MAX_ENTRIES
