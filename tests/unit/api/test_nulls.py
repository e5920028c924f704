"""Which nulls of an object count as absent."""

from __future__ import annotations

from livesize.api.nulls import without_nulls


def test_null_is_absent_at_any_depth() -> None:
    obj = {"kind": "ConfigMap", "data": {"a": None}, "metadata": {"labels": None, "name": "x"}}
    assert without_nulls(obj) == {"kind": "ConfigMap", "data": {}, "metadata": {"name": "x"}}


def test_data_of_a_revision_stays_as_it_came() -> None:
    """Kubernetes' controller looks for its own bytes, or makes one revision after the other."""
    data = {"spec": {"template": {"metadata": {"creationTimestamp": None}}}}
    metadata = {"name": "web-1", "creationTimestamp": None}
    obj = {"kind": "ControllerRevision", "metadata": metadata, "data": data}
    assert without_nulls(obj) == {**obj, "metadata": {"name": "web-1"}}
    assert "data" not in without_nulls({**obj, "data": None})
