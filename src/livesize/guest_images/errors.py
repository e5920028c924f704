"""What can go wrong while a guest image is made."""

from __future__ import annotations

from livesize.runtime.interface import RuntimeCallError


class GuestImageError(RuntimeCallError):
    """The image cannot be made on this machine; the sentence says what is missing."""
