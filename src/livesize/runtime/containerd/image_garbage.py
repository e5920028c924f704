"""Removes unused images when the disk is nearly full; they are pulled again when needed.

Only of a private containerd, and only what came from a registry: what was imported by hand could
not be had again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.containerd.cri_client import CriClient
from livesize.runtime.containerd.messages import ImageSpec, ProtobufMessage
from livesize.runtime.interface import RuntimeCallError

log = get_logger("containerd")


class CleaningLimits(msgspec.Struct, frozen=True):
    """Begun where more than ``high`` of the disk is used, and done until no more than ``low`` is.
    An image is left alone for so long after it was seen in use, or first seen."""

    high: float = 0.85
    low: float = 0.80
    least_seconds: float = 120.0


class DiskUse(msgspec.Struct, frozen=True):
    total_bytes: int
    used_bytes: int


class UnusedImage(msgspec.Struct, frozen=True):
    id: str
    size_bytes: int
    used_at: float


def images_to_remove(
    images: Iterable[UnusedImage], disk: DiskUse, limits: CleaningLimits, now: float
) -> list[str]:
    """Those that were not used for longest, as many as it takes. Pure."""
    if disk.used_bytes <= limits.high * disk.total_bytes:
        return []
    excess = disk.used_bytes - limits.low * disk.total_bytes
    chosen: list[str] = []
    for image in sorted(images, key=lambda one: (one.used_at, one.id)):
        if excess <= 0:
            break
        if now - image.used_at >= limits.least_seconds:
            chosen.append(image.id)
            excess -= image.size_bytes
    return chosen


class ImageCleaner:
    """``folder``: on the disk that containerd keeps its images on."""

    def __init__(
        self,
        client: CriClient,
        clock: Clock,
        folder: Path,
        limits: CleaningLimits,
        measure: Callable[[Path], DiskUse] | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._folder = folder
        self._limits = limits
        self._measure = measure or _measure
        self._used_at: dict[str, float] = {}  # by id

    def used(self, image_id: str) -> None:
        """Somebody is about to start a container of it."""
        self._used_at[image_id] = self._clock.now()

    async def clean(self, references: frozenset[str]) -> None:
        """``references``: ids and names of images that are used, or could not be had again."""
        listing = await self._client.call("ListImages")
        now, unused = self._clock.now(), []
        for image in listing.images:
            if _names(image) & references:
                self._used_at[image.id] = now
            else:
                used_at = self._used_at.setdefault(image.id, now)
                unused.append(UnusedImage(image.id, image.size, used_at))
        known = {image.id for image in listing.images}
        self._used_at = {key: time for key, time in self._used_at.items() if key in known}
        for image_id in images_to_remove(unused, self._measure(self._folder), self._limits, now):
            await self._remove(image_id)

    async def _remove(self, image_id: str) -> None:
        try:
            await self._client.call("RemoveImage", image=ImageSpec(image=image_id))
        except RuntimeCallError as failure:
            log.warning("image not removed", image=image_id, reason=str(failure))
        else:
            log.info("unused image removed, the disk is nearly full", image=image_id)


def _names(image: ProtobufMessage) -> set[str]:
    return {image.id, *image.repo_tags, *image.repo_digests}


def _measure(folder: Path) -> DiskUse:
    usage = shutil.disk_usage(folder)
    return DiskUse(usage.total, usage.used)
