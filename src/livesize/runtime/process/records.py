"""What the process runtime keeps in files, so that everything survives the agent.

    pods/<uid>/pod.json                         the pod
    pods/<uid>/containers/<name>/<attempt>/     one start of one container:
        record.json     what was asked; written before anything else, so it marks the start
        launch          what the launcher reads (marshal)
        shim            pid of the shim; written by the shim: from here on somebody runs
        pid             host pid of the workload and its start time; written by the launcher
        exit            exit status; written by the shim
        outcome.json    how it ended; written by the agent that learned of it, and final
        stdin           a fifo, where something may be attached to its input
        upper work root ready
    logs/<uid>/<name>/<attempt>.log
    logs/<uid>/<name>/<attempt>.times           when which part of it came
    trash/                                      what is being removed

A file appears whole: it is written under another name and renamed. The two that the shim writes
with one write, having no rename, count when their line is whole. Nothing waits for the disk: what
a power cut has left of a file counts as not written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from livesize.runtime.cgroups.interface import safe_name
from livesize.runtime.interface import ContainerConfig, PodConfig
from livesize.runtime.removal import FolderRemover

_FOLDERS = ("upper", "work", "root")
_MOST_LOGS = 2

T = TypeVar("T")


class ContainerRecord(msgspec.Struct, frozen=True):
    id: str
    config: ContainerConfig
    image_id: str
    boot_id: str
    created_at: float
    note: str = ""


class ContainerExit(msgspec.Struct, frozen=True):
    exit_code: int
    finished_at: float
    oom_killed: bool


class WorkloadPid(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int
    started_at: float


class ContainerAttempt:
    """The folder of one start."""

    def __init__(self, folder: Path, log: Path, remover: FolderRemover) -> None:
        self._remover = remover
        self.folder = folder
        self.log = log
        self.ready = folder / "ready"
        self.launch = folder / "launch"
        self.stdin = folder / "stdin"

    def make(self, record: ContainerRecord) -> None:
        self.folder.mkdir(parents=True)
        write_whole(self.folder / "record.json", msgspec.json.encode(record))
        for name in _FOLDERS:
            (self.folder / name).mkdir()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._drop_old_logs()

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def record(self) -> ContainerRecord | None:
        """None: killed before the record was whole; nothing was started."""
        return read_whole(self.folder / "record.json", ContainerRecord)

    def save_note(self, record: ContainerRecord) -> None:
        write_whole(self.folder / "record.json", msgspec.json.encode(record))

    def shim_pid(self) -> int | None:
        return _number(_bytes(self.folder / "shim"))

    def workload(self) -> WorkloadPid | None:
        path = self.folder / "pid"
        words = (_bytes(path) or b"").split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            return None
        return WorkloadPid(int(words[0]), int(words[1]), path.stat().st_mtime)

    def exit_status(self) -> tuple[int, float] | None:
        """The status and when it was written."""
        path = self.folder / "exit"
        status = _number(_bytes(path))
        return None if status is None else (status, path.stat().st_mtime)

    def outcome(self) -> ContainerExit | None:
        return read_whole(self.folder / "outcome.json", ContainerExit)

    def save_outcome(self, outcome: ContainerExit) -> None:
        write_whole(self.folder / "outcome.json", msgspec.json.encode(outcome))

    def remove_tree(self) -> None:
        """What the workload wrote; the record stays."""
        for name in _FOLDERS:
            self._remover.take(self.folder / name)

    def remove(self) -> None:
        self._remover.take(self.folder)

    def _drop_old_logs(self) -> None:
        """This start's log and the one before are kept."""
        number = int(self.log.stem)
        for path in self.log.parent.glob("*.*"):
            if path.stem.isdigit() and int(path.stem) <= number - _MOST_LOGS:
                path.unlink(missing_ok=True)


class ProcessRecords:
    """All folders below one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._pods = state_dir / "pods"
        self._logs = state_dir / "logs"
        self._remover = FolderRemover(state_dir / "trash")

    def open(self) -> None:
        self._remover.open()

    def close(self) -> None:
        self._remover.close()

    def pod_uids(self) -> list[str]:
        if not self._pods.is_dir():
            return []
        return sorted(path.name for path in self._pods.iterdir())

    def load_pod(self, uid: str) -> PodConfig | None:
        return read_whole(self._pods / uid / "pod.json", PodConfig)

    def save_pod(self, config: PodConfig) -> None:
        folder = self._pods / safe_name(config.uid)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "pod.json", msgspec.json.encode(config))

    def remove_pod(self, uid: str) -> None:
        """The record goes first: what a killed removal leaves is no pod any more."""
        folder = self._pods / safe_name(uid)
        (folder / "pod.json").unlink(missing_ok=True)
        self._remover.take(folder)
        self._remover.take(self._logs / safe_name(uid))

    def container_names(self, uid: str) -> list[str]:
        folder = self._pods / uid / "containers"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def attempts(self, uid: str, name: str) -> list[ContainerAttempt]:
        """Newest first."""
        folder = self._pods / uid / "containers" / name
        numbers = sorted((int(path.name) for path in folder.iterdir()), reverse=True)
        return [self.attempt(uid, name, number) for number in numbers]

    def attempt(self, uid: str, name: str, number: int) -> ContainerAttempt:
        folder = self._pods / safe_name(uid) / "containers" / safe_name(name) / str(number)
        return ContainerAttempt(folder, self._logs / uid / name / f"{number}.log", self._remover)


def write_whole(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    fresh.rename(path)


def read_whole(path: Path, kind: type[T]) -> T | None:
    """None: it is not there, or was not yet on the disk, or not all of it, when the power went."""
    content = _bytes(path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        return None


def _number(line: bytes | None) -> int | None:
    """None: it is not whole."""
    return int(line) if line is not None and line.endswith(b"\n") and line[:-1].isdigit() else None


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
