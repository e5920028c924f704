"""What the libvirt runtime keeps in files, so that everything survives the agent.

    pods/<uid>/owner.json     the user its VM runs as; there before anything else, gone last
    pods/<uid>/pod.json       the pod
    pods/<uid>/record.json    what was asked of the newest start of its VM; written first
    pods/<uid>/started.json   QEMU's pid; from here on the VM counts as started
    pods/<uid>/outcome.json   how it ended; final

A file appears whole: it is written under another name and renamed. What a power cut has left of one
counts as not written.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TypeVar

import msgspec

from livesize.runtime.cgroups.interface import safe_name
from livesize.runtime.interface import ContainerConfig, PodConfig
from livesize.runtime.libvirt.outstanding import BalloonRequest
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.process.records import ContainerExit, read_whole, write_whole

S = TypeVar("S", bound=msgspec.Struct)


class VmRecord(msgspec.Struct, frozen=True):
    id: str
    config: ContainerConfig
    boot_id: str  # of this machine
    created_at: float


class StartedVm(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int
    started_at: float
    vcpus_created: int  # in the life of this QEMU, those since unplugged included
    is_released: bool = False  # the guest was let run
    # The guest's boot in which memory went online where its kernel may keep it.
    unmovable_memory_boot: str = msgspec.field(default="", name="kept_memory_boot")
    balloon: BalloonRequest | None = None  # None: it was not noted, or there is none


class PodFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def pod(self) -> PodConfig | None:
        return self._load("pod.json", PodConfig)

    def save_pod(self, config: PodConfig) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._save("pod.json", config)

    def owner(self) -> VmOwner | None:
        return self._load("owner.json", VmOwner)

    def save_owner(self, owner: VmOwner) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._save("owner.json", owner)

    def record(self) -> VmRecord | None:
        return self._load("record.json", VmRecord)

    def started(self) -> StartedVm | None:
        return self._load("started.json", StartedVm)

    def save_started(self, started: StartedVm) -> None:
        self._save("started.json", started)

    def outcome(self) -> ContainerExit | None:
        return self._load("outcome.json", ContainerExit)

    def save_outcome(self, outcome: ContainerExit) -> None:
        if self.path.is_dir():
            self._save("outcome.json", outcome)

    def begin(self, record: VmRecord) -> None:
        """A new start: what is known of the one before goes."""
        self.forget_start()
        self._save("record.json", record)

    def forget_start(self) -> None:
        for name in ("record.json", "started.json", "outcome.json"):
            (self.path / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """The pod goes first: what a killed removal leaves is no pod any more."""
        (self.path / "pod.json").unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def _load(self, name: str, kind: type[S]) -> S | None:
        return read_whole(self.path / name, kind)

    def _save(self, name: str, value: msgspec.Struct) -> None:
        write_whole(self.path / name, msgspec.json.encode(value))


class VmFolders:
    def __init__(self, state_dir: Path) -> None:
        self._pods = state_dir / "pods"

    def uids(self) -> list[str]:
        return sorted(path.name for path in self._pods.iterdir()) if self._pods.is_dir() else []

    def owners(self) -> list[VmOwner]:
        """Of every VM that something may be left of."""
        found = (self.of(uid).owner() for uid in self.uids())
        return [owner for owner in found if owner is not None]

    def of(self, uid: str) -> PodFolder:
        return PodFolder(self._pods / safe_name(uid))
