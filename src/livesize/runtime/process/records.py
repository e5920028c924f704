"""What the process runtime keeps in files, so that everything survives the agent.

    pods/<uid>/pod.json                         the pod
    pods/<uid>/containers/<name>/<attempt>/     one start of one container:
        record.json     what was asked; written before anything else, so it marks the start
        launch          what the launcher reads (marshal)
        shim            pid of the shim; written by the shim: from here on somebody runs
        pid             host pid of the workload and its start time; written by the launcher
        exit            exit status; written by the shim
        outcome.json    how it ended; written by the agent that learned of it, and final
        upper work root ready
    logs/<uid>/<name>/<attempt>.log
    logs/<uid>/<name>/<attempt>.times           when which part of it came

A file appears whole: it is written under another name and renamed. The two that the shim writes
with one write, having no rename, count when their line is whole.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from livesize.runtime.cgroups.interface import safe_name
from livesize.runtime.interface import ContainerConfig, PodConfig

_FOLDERS = ("upper", "work", "root")
_KEPT_LOGS = 2


class ContainerRecord(msgspec.Struct, frozen=True):
    id: str
    config: ContainerConfig
    image_id: str
    boot_id: str
    created_at: float
    note: str = ""


class Outcome(msgspec.Struct, frozen=True):
    exit_code: int
    finished_at: float
    oom_killed: bool


class WorkloadPid(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int
    started_at: float


class Attempt:
    """The folder of one start."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        self.ready = folder / "ready"
        self.launch = folder / "launch"

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
        content = _bytes(self.folder / "record.json")
        return None if content is None else msgspec.json.decode(content, type=ContainerRecord)

    def save_note(self, record: ContainerRecord) -> None:
        write_whole(self.folder / "record.json", msgspec.json.encode(record))

    def shim_pid(self) -> int | None:
        content = _bytes(self.folder / "shim") or b""
        return int(content) if content.endswith(b"\n") else None

    def workload(self) -> WorkloadPid | None:
        path = self.folder / "pid"
        content = _bytes(path)
        if content is None:
            return None
        pid, start_ticks = content.split()
        return WorkloadPid(int(pid), int(start_ticks), path.stat().st_mtime)

    def exit_status(self) -> tuple[int, float] | None:
        """The status and when it was written."""
        path = self.folder / "exit"
        content = _bytes(path) or b""
        return (int(content), path.stat().st_mtime) if content.endswith(b"\n") else None

    def outcome(self) -> Outcome | None:
        content = _bytes(self.folder / "outcome.json")
        return None if content is None else msgspec.json.decode(content, type=Outcome)

    def save_outcome(self, outcome: Outcome) -> None:
        write_whole(self.folder / "outcome.json", msgspec.json.encode(outcome))

    def remove_tree(self) -> None:
        """What the workload wrote; the record stays."""
        for name in _FOLDERS:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _drop_old_logs(self) -> None:
        """This start's log and the one before are kept."""
        number = int(self.log.stem)
        for path in self.log.parent.glob("*.*"):
            if path.stem.isdigit() and int(path.stem) <= number - _KEPT_LOGS:
                path.unlink(missing_ok=True)


class Records:
    """All folders below one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._pods = state_dir / "pods"
        self._logs = state_dir / "logs"

    def pod_uids(self) -> list[str]:
        if not self._pods.is_dir():
            return []
        return sorted(path.name for path in self._pods.iterdir())

    def load_pod(self, uid: str) -> PodConfig | None:
        content = _bytes(self._pods / uid / "pod.json")
        return None if content is None else msgspec.json.decode(content, type=PodConfig)

    def save_pod(self, config: PodConfig) -> None:
        folder = self._pods / safe_name(config.uid)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "pod.json", msgspec.json.encode(config))

    def remove_pod(self, uid: str) -> None:
        """The record goes first: what a killed removal leaves is no pod any more."""
        folder = self._pods / safe_name(uid)
        (folder / "pod.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self._logs / safe_name(uid), ignore_errors=True)

    def container_names(self, uid: str) -> list[str]:
        folder = self._pods / uid / "containers"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def attempts(self, uid: str, name: str) -> list[Attempt]:
        """Newest first."""
        folder = self._pods / uid / "containers" / name
        numbers = sorted((int(path.name) for path in folder.iterdir()), reverse=True)
        return [self.attempt(uid, name, number) for number in numbers]

    def attempt(self, uid: str, name: str, number: int) -> Attempt:
        folder = self._pods / safe_name(uid) / "containers" / safe_name(name) / str(number)
        return Attempt(folder, self._logs / uid / name / f"{number}.log")


def write_whole(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    fresh.rename(path)


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
