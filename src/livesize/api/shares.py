"""A number of pods, or a percentage of them. Pure."""

from __future__ import annotations


def share_of(share: int | str, whole: int, *, rounded_up: bool) -> int:
    """``share`` itself where it is a number, else so many percent of ``whole``."""
    if not isinstance(share, str):
        return share
    hundredths = int(share.removesuffix("%")) * whole
    return -(-hundredths // 100) if rounded_up else hundredths // 100
