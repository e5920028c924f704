"""Keeps the volumes of pods in one folder of this machine.

    UID/volumes/NAME    the volume; one in memory is a tmpfs mounted there
    UID/parts/NAME      a part of a volume, bound where no link can lead elsewhere
    UID/files/NAME      a file of the pod's own: /etc/hosts, what a container says of its end

The volumes of claims have a folder of their own next to it (claim_folders.py). Both are for root
alone: a container comes to its volumes by mounts, never by paths.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TypeVar

from livesize.runtime.cgroups.interface import safe_name
from livesize.runtime.removal import remove_tree
from livesize.runtime.volumes.claim_folders import ClaimFolders
from livesize.runtime.volumes.files import write_files
from livesize.runtime.volumes.interface import (
    ClaimFolder,
    EmptyFolder,
    FileTree,
    HostPath,
    MemoryFolder,
    MemorySize,
    PodVolume,
    VolumeError,
)
from livesize.runtime.volumes.mounts import Mounts

T = TypeVar("T")

_THREADS = 2
_SECRET_BYTES = 64 << 20  # no more than is in it is used; a Secret holds 1 MiB at most
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ANYTHING = os.O_PATH | os.O_CLOEXEC  # opening a fifo or a device would do something

_CHECKS: dict[str, Callable[[int], bool]] = {
    "Directory": stat.S_ISDIR,
    "DirectoryOrCreate": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "FileOrCreate": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class FolderVolumes:
    def __init__(self, root: Path, mounts: Mounts, claims: Path | None = None) -> None:
        self._root = root.absolute()
        self._mounts = mounts
        self._claims = ClaimFolders(claims or root.with_name("claims"), mounts)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="livesize-volumes")
        self._patient = ThreadPoolExecutor(_THREADS, thread_name_prefix="livesize-volumes-slow")

    @property
    def claims_root(self) -> str:
        return str(self._claims.root)

    def pods(self) -> tuple[str, ...]:
        if not self._root.is_dir():
            return ()
        return tuple(sorted(path.name for path in self._root.iterdir()))

    async def prepare(self, pod_uid: str, volume: PodVolume) -> str:
        return await self._in_thread(volume.name, lambda: self._prepare(pod_uid, volume))

    async def prepare_part(self, pod_uid: str, part: str, source: str, inside: str) -> str:
        return await self._in_thread(part, lambda: self._bind(pod_uid, part, source, inside))

    async def prepare_file(self, pod_uid: str, name: str, content: bytes, mode: int) -> str:
        path = self._file(pod_uid, name)

        def prepare() -> None:
            self._make_private(pod_uid)
            path.parent.mkdir(exist_ok=True)
            if not _holds(path, content):
                _overwrite(path, content)
            path.chmod(mode)

        await self._in_thread(name, prepare)
        return str(path)

    def read_file(self, pod_uid: str, name: str, most_bytes: int) -> bytes:
        """Containers have the file itself, never its folder: no link can stand here."""
        try:
            with self._file(pod_uid, name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most_bytes))
                return file.read(most_bytes)
        except OSError:
            return b""

    async def remove_file(self, pod_uid: str, name: str) -> None:
        path = self._file(pod_uid, name)
        await self._in_thread(name, lambda: path.unlink(missing_ok=True))

    async def used_bytes(self, pod_uid: str, name: str) -> int:
        path = self._path(pod_uid, name)
        return await self._in_time(name, lambda: _used_bytes(path))

    def memory(self, pod_uid: str, name: str) -> MemorySize | None:
        path = self._path(pod_uid, name)
        if path not in self._mounts.below(path):
            return None
        return self._mounts.memory(path)

    async def resize(self, pod_uid: str, name: str, size_bytes: int) -> None:
        path = self._path(pod_uid, name)
        try:
            self._mounts.resize_memory(path, size_bytes)
        except OSError as failure:
            if failure.errno != errno.EINVAL:
                raise VolumeError(f"cannot resize volume {name}: {failure.strerror}") from failure
            used = self._mounts.memory(path).used_bytes
            raise VolumeError(
                f"volume {name}: size ({size_bytes}) below what it holds ({used}),"
                f" {used - size_bytes} bytes to go; remove files from it"
            ) from failure

    async def clear(self, pod_uid: str, name: str) -> None:
        path = self._path(pod_uid, name)
        await self._in_thread(name, lambda: _empty(path))

    async def let_go(self, pod_uid: str) -> None:
        await self._in_thread("of the pod", lambda: self._unmount(pod_uid))

    async def remove(self, pod_uid: str) -> None:
        await self._in_time("of the pod", lambda: self._remove(pod_uid))

    async def remove_claim_folder(self, folder: str) -> None:
        await self._in_time(folder, lambda: self._claims.remove(folder))

    def _prepare(self, pod_uid: str, volume: PodVolume) -> str:
        if isinstance(volume, HostPath):
            return _host_path(volume)
        if isinstance(volume, ClaimFolder):
            return str(self._claims.make(volume.folder, volume.group))
        path = self._path(pod_uid, volume.name)
        self._make_private(pod_uid)
        fresh = not path.is_dir()
        path.mkdir(parents=True, exist_ok=True)
        match volume:
            case EmptyFolder(group=group):
                if fresh:
                    _open_to_all(path, group)
            case MemoryFolder(size_bytes=size_bytes, group=group):
                if path not in self._mounts.below(path):
                    self._mounts.mount_memory(path, size_bytes)
                    _open_to_all(path, group)
            case FileTree(files=files, group=group, secret=secret):
                if secret and path not in self._mounts.below(path):
                    self._mounts.mount_memory(path, _SECRET_BYTES)
                path.chmod(0o755)
                write_files(path, files, group)
        return str(path)

    def _bind(self, pod_uid: str, part: str, source: str, inside: str) -> str:
        point = self._root / safe_name(pod_uid) / "parts" / safe_name(part)
        if point in self._mounts.below(point):
            self._mounts.unmount(point)  # of the start before; it may have been made anew
        with _opened_inside(source, inside) as descriptor:
            point.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                point.mkdir(exist_ok=True)
            else:
                point.touch()
            self._mounts.bind(descriptor, point)
        return str(point)

    def _make_private(self, pod_uid: str) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o700)
        (self._root / safe_name(pod_uid) / "volumes").mkdir(parents=True, exist_ok=True)

    def _unmount(self, pod_uid: str) -> None:
        for point in reversed(self._mounts.below(self._root / safe_name(pod_uid))):
            self._mounts.unmount(point)

    def _remove(self, pod_uid: str) -> None:
        """What is still mounted is never walked into."""
        self._unmount(pod_uid)
        remove_tree(self._root / safe_name(pod_uid))

    def _file(self, pod_uid: str, name: str) -> Path:
        return self._root / safe_name(pod_uid) / "files" / safe_name(name)

    def _path(self, pod_uid: str, name: str) -> Path:
        return self._root / safe_name(pod_uid) / "volumes" / safe_name(name)

    async def _in_time(self, what: str, call: Callable[[], T]) -> T:
        """What looks at every file: nobody who starts waits behind it."""
        return await self._in_thread(what, call, self._patient)

    async def _in_thread(
        self, what: str, call: Callable[[], T], threads: ThreadPoolExecutor | None = None
    ) -> T:
        """Disks may be slow, and folders large."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(threads or self._threads, call)
        except OSError as failure:
            raise VolumeError(f"volume {what}: {failure}") from failure


def _open_to_all(path: Path, group: int | None) -> None:
    """What is made in there is the group's too."""
    if group is None:
        path.chmod(0o777)
    else:
        os.chown(path, -1, group)
        path.chmod(0o2777)


def _host_path(volume: HostPath) -> str:
    path = Path(volume.path)
    if volume.kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(mode=0o755, parents=True)
    elif volume.kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    if not path.exists():
        raise VolumeError(f"volume {volume.name}: hostPath {volume.path} does not exist here")
    check = _CHECKS.get(volume.kind)
    if check is not None and not check(path.stat().st_mode):
        raise VolumeError(f"volume {volume.name}: hostPath {volume.path} is no {volume.kind}")
    return str(path)


@contextlib.contextmanager
def _opened_inside(source: str, inside: str) -> Iterator[int]:
    """What lies at ``inside``, made where it is missing. A workload may have put links there that
    lead to the machine's own files: none is followed."""
    parts = PurePosixPath(inside).parts
    descriptor = os.open(source, _FOLDER)
    try:
        for index, name in enumerate(parts):
            within = _open_or_make(descriptor, name, is_last=index == len(parts) - 1)
            os.close(descriptor)
            descriptor = within
        _refuse_link(descriptor)
        yield descriptor
    except OSError as failure:
        if failure.errno in (errno.ELOOP, errno.ENOTDIR):
            raise VolumeError(f"subPath {inside} leads over a link or a file") from failure
        raise
    finally:
        os.close(descriptor)


def _refuse_link(descriptor: int) -> None:
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _open_or_make(folder: int, name: str, *, is_last: bool) -> int:
    try:
        flags = _ANYTHING if is_last else _FOLDER
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        os.mkdir(name, 0o777, dir_fd=folder)
        descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        os.fchmod(descriptor, 0o777)
        return descriptor


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        remove_tree(path)


def _overwrite(path: Path, content: bytes) -> None:
    """In place: running containers have this very file. None sees it empty."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
        file.truncate()


def _holds(path: Path, content: bytes) -> bool:
    """A container may have written to it as much as it liked: no more is read than is wanted."""
    try:
        with path.open("rb") as file:
            return file.read(len(content) + 1) == content
    except FileNotFoundError:
        return False


def _used_bytes(folder: Path) -> int:
    """Blocks, not sizes: a file with holes takes what it takes. Whoever removes files meanwhile
    does no harm."""
    used, waiting = 0, [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                with contextlib.suppress(OSError):
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
    return used
