"""Brings images to containerd: from our own store, where it has the name, else from a registry."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from livesize.machinery.clock import Clock
from livesize.runtime.containerd.cri_client import NAMESPACE, CriClient, CriRefusedError
from livesize.runtime.containerd.messages import AuthConfig, ImageSpec, ProtobufMessage
from livesize.runtime.image_export import IMAGE_LABEL, export_image
from livesize.runtime.images import Image, ImageStore, normalise
from livesize.runtime.interface import (
    GoneError,
    ImageMissingError,
    RegistryLogin,
    RuntimeCallError,
)

PULL_SECONDS = 600.0
_IMPORT_SECONDS = 300
_NOTICED_DELAYS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

ImageThread: TypeAlias = Callable[..., Awaitable[Image | None]]


class ContainerdImages:
    """``ctr``: the program that imports archives; it comes with containerd."""

    def __init__(
        self, client: CriClient, store: ImageStore, ctr: str, in_thread: ImageThread, clock: Clock
    ) -> None:
        self._client = client
        self._clock = clock
        self._store = store
        self._ctr = ctr
        self._in_thread = in_thread
        self._one_at_a_time = asyncio.Lock()
        self._brought: dict[str, tuple[str, str]] = {}  # name: image of the store, containerd's id

    async def require(self, ref: str) -> str:
        """containerd's id of the image. What was imported into our store wins, also over an older
        import of the same name."""
        ours = await self._in_thread(self._find, ref)
        if ours is not None:
            return await self._bring(ref, ours)
        found = await self._status(ref)
        if found is None:
            raise ImageMissingError(
                f"image {ref} is not on this machine; it is pulled where its imagePullPolicy"
                " allows that, or import it: livesize image import"
            )
        return str(found.image.id)

    async def user(self, image_id: str) -> str:
        """Whom it runs as, by number or by name; empty: root."""
        found = await self._status(image_id)
        if found is None:
            raise ImageMissingError(f"image {image_id} has been removed")
        return str(found.image.uid.value) if found.image.HasField("uid") else found.image.username

    async def pull(self, ref: str, logins: tuple[RegistryLogin, ...]) -> None:
        """Fetch it from its registry, with the first login that is accepted, or without any."""
        if await self._in_thread(self._find, ref) is not None:
            return  # imported by hand, under this very name
        refusals: list[str] = []
        for login in logins or (None,):
            fields = {} if login is None else {"auth": AuthConfig(**msgspec.structs.asdict(login))}
            try:
                await self._client.call(
                    "PullImage", seconds=PULL_SECONDS, image=ImageSpec(image=ref), **fields
                )
            except (CriRefusedError, GoneError) as refusal:
                refusals.append(str(refusal))
            else:
                return
        raise ImageMissingError(f"image {ref} could not be pulled: {refusals[-1]}")

    async def names(self) -> tuple[str, ...]:
        """All that pods may name."""
        listing = await self._client.call("ListImages")
        known = {tag for image in listing.images for tag in image.repo_tags}
        return tuple(sorted(known.union(self._store.names())))

    def irreplaceable(self) -> frozenset[str]:
        """Ids of what was brought from our store: it is looked for by these."""
        return frozenset(known for _, known in self._brought.values())

    async def _bring(self, ref: str, ours: Image) -> str:
        known = self._brought.get(ref)
        if known is not None and known[0] == ours.id:
            return known[1]
        async with self._one_at_a_time:
            found = await self._status(ref)
            if found is None or _label(found) != ours.id:
                await self._in_thread(self._import, ref, ours)
                found = await self._imported(ref, ours)
            self._brought[ref] = (ours.id, str(found.image.id))
            return str(found.image.id)

    async def _imported(self, ref: str, ours: Image) -> ProtobufMessage:
        """CRI hears of an import by an event of its own, a moment later."""
        for delay_seconds in _NOTICED_DELAYS:
            found = await self._status(ref)
            if found is not None and _label(found) == ours.id:
                return found
            await self._clock.sleep(delay_seconds)
        raise ImageMissingError(f"image {ref} was imported, but containerd does not show it")

    async def _status(self, ref: str) -> ProtobufMessage | None:
        found = await self._client.call("ImageStatus", image=ImageSpec(image=ref), verbose=True)
        return found if found.HasField("image") else None

    def _find(self, ref: str) -> Image | None:
        try:
            return self._store.resolve(ref)
        except ImageMissingError:
            return None

    def _import(self, ref: str, image: Image) -> None:
        with tempfile.TemporaryDirectory(prefix="livesize-image-") as folder:
            archive = Path(folder, "image.tar")
            export_image(image, normalise(ref), archive)
            command = [self._ctr, "--address", str(self._client.socket), "--namespace", NAMESPACE]
            done = subprocess.run(
                [*command, "images", "import", "--no-unpack", str(archive)],
                capture_output=True,
                text=True,
                check=False,
                timeout=_IMPORT_SECONDS,
            )
        if done.returncode != 0:
            words = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            raise RuntimeCallError(f"cannot bring image {ref} to containerd: {words}")


def _label(found: ProtobufMessage) -> str:
    """Which image of our store it was made of, if any."""
    try:
        spec = json.loads(found.info["info"])["imageSpec"]
        return str(spec["config"]["Labels"][IMAGE_LABEL])
    except (ValueError, KeyError, TypeError):
        return ""
