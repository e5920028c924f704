"""Sets of fields, and names in them, were kept for later whatever their size: a client that made up
large ones could fill the memory, also with what was refused or deleted."""

from __future__ import annotations

from typing import Any

from livesize.api.apply import field_sets, list_keys
from livesize.api.apply.field_sets import shared
from livesize.api.apply.list_keys import by_element


def test_a_large_set_of_fields_is_not_kept() -> None:
    small: Any = {"f:data": {"f:a": {}}}
    assert shared(small) is shared({"f:data": {"f:a": {}}})
    before = field_sets._cached.cache_info().currsize
    large: Any = {"f:data": {f"f:key-{number}": {} for number in range(2000)}}
    assert shared(large) == large
    assert field_sets._cached.cache_info().currsize == before


def test_a_long_name_is_not_kept() -> None:
    before = [one.cache_info().currsize for one in (list_keys._one_text, list_keys._formatted)]
    long = "x" * 1000
    assert by_element([{"name": long}], ("name",)) == {f'k:{{"name":"{long}"}}': {"name": long}}
    item = {"containerPort": 1, "protocol": long}
    assert by_element([item], ("containerPort", "protocol")) == {
        f'k:{{"containerPort":1,"protocol":"{long}"}}': item
    }
    after = [one.cache_info().currsize for one in (list_keys._one_text, list_keys._formatted)]
    assert after == before
