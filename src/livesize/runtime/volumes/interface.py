"""What the agent asks of the driver of volumes; containers get them by bind mounts.

A volume belongs to its pod and lasts as long as it does, whatever its containers do; only what is
kept lasts until somebody removes it. Everything here survives the agent, and asking twice is
harmless.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from livesize.runtime.interface import RuntimeCallError


class VolumeError(RuntimeCallError):
    """A volume cannot be had, or not changed; the sentence says which and why."""


class EmptyFolder(msgspec.Struct, frozen=True, tag=True):
    """A folder on the machine's disk, empty at the pod's start. ``group``: whose it is."""

    name: str
    group: int | None = None


class MemoryFolder(msgspec.Struct, frozen=True, tag=True):
    """A folder in memory. What is written into it counts as the memory of who writes."""

    name: str
    size_bytes: int
    group: int | None = None


class HostPath(msgspec.Struct, frozen=True, tag=True):
    """A path of the machine itself. ``kind``: what has to be there, in Kubernetes' words."""

    name: str
    path: str
    kind: str = ""


class VolumeFile(msgspec.Struct, frozen=True):
    """``path`` is relative and stays within the volume."""

    path: str
    content: bytes
    mode: int


class FileTree(msgspec.Struct, frozen=True, tag=True):
    """Files that somebody else's object says. All of them change at the same instant. What is
    ``secret`` never comes to a disk."""

    name: str
    files: tuple[VolumeFile, ...]
    group: int | None = None
    secret: bool = False


class ClaimFolder(msgspec.Struct, frozen=True, tag=True):
    """A folder that outlives all pods; ``folder`` names it among those of all claims."""

    name: str
    folder: str
    group: int | None = None


PodVolume: TypeAlias = EmptyFolder | MemoryFolder | HostPath | FileTree | ClaimFolder


class MemorySize(msgspec.Struct, frozen=True):
    size_bytes: int
    used_bytes: int


class VolumeStore(Protocol):
    @property
    def claims_root(self) -> str:
        """Where the folders of claims are, each under its name."""
        ...

    def pods(self) -> tuple[str, ...]:
        """The uids of all pods that have volumes here."""
        ...

    async def prepare(self, pod_uid: str, volume: PodVolume) -> str:
        """Have the volume, and return its path on this machine. One that is there keeps what is
        in it and its size; a FileTree gets the new files."""
        ...

    async def prepare_part(self, pod_uid: str, part: str, source: str, inside: str) -> str:
        """Return a path that stands for ``inside`` a volume, which no link in it leads away from.
        ``part`` names it among the pod's."""
        ...

    async def prepare_file(self, pod_uid: str, name: str, content: bytes, mode: int) -> str:
        """Have a single file of the pod's, which is no volume; return its path."""
        ...

    def read_file(self, pod_uid: str, name: str, most_bytes: int) -> bytes:
        """The end of such a file; empty where there is none."""
        ...

    async def remove_file(self, pod_uid: str, name: str) -> None:
        """Harmless where there is none."""
        ...

    async def used_bytes(self, pod_uid: str, name: str) -> int:
        """What the files in a volume take on disk."""
        ...

    def memory(self, pod_uid: str, name: str) -> MemorySize | None:
        """None: there is no such volume in memory (yet)."""
        ...

    async def resize(self, pod_uid: str, name: str, size_bytes: int) -> None:
        """Change the size of a volume in memory. VolumeError: it holds more than that."""
        ...

    async def clear(self, pod_uid: str, name: str) -> None:
        """Remove everything that is in the volume."""
        ...

    async def let_go(self, pod_uid: str) -> None:
        """Nothing runs: give memory and mounts back. What lies on disk stays."""
        ...

    async def remove(self, pod_uid: str) -> None:
        """The pod is gone, and its volumes with it. Paths of the machine itself stay, and what is
        kept."""
        ...

    async def remove_claim_folder(self, folder: str) -> None:
        """Remove the folder of a claim and all that is in it; harmless where there is none."""
        ...
