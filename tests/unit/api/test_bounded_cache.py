"""What was read of a text is kept, and nobody can fill the memory with texts."""

from __future__ import annotations

from livesize.api.bounded_cache import bounded_cache


def test_short_texts_are_read_once_and_long_ones_each_time() -> None:
    read: list[str] = []

    @bounded_cache(2, longest=3)
    def length(text: str) -> int:
        read.append(text)
        return len(text)

    assert [length(text) for text in ("a", "a", "long", "long")] == [1, 1, 4, 4]
    assert read == ["a", "long", "long"]
    for text in ("b", "c", "a"):  # only two are kept, so the first is read again
        length(text)
    assert read[3:] == ["b", "c", "a"]
