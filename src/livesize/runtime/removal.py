"""Removes folders that a workload has filled: however deep, however many files, whatever the names.

A folder is emptied from its top: the folders in it are moved up beside each other until none has a
folder in it. So no path gets long, no call nests, two descriptors are open at a time, and no link
is followed. What a kill leaves is a smaller folder, removed by the next call.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from livesize.machinery.telemetry import get_logger

log = get_logger("runtime")

_AT_A_TIME = 1000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class StoppedError(Exception):
    """Whoever asked for a removal wants it no longer."""


def remove_tree(path: Path, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Harmless where there is none. Raises OSError for what cannot be removed, for instance what
    is mounted upon, and StoppedError."""
    try:
        top = os.open(path, _FOLDER)
    except FileNotFoundError:
        return
    except NotADirectoryError:  # a file, or a link
        path.unlink(missing_ok=True)
        return
    try:
        _Emptying(top, is_stopped).run()
    finally:
        os.close(top)
    path.rmdir()


class _Emptying:
    def __init__(self, top: int, is_stopped: Callable[[], bool]) -> None:
        self._top = top
        self._is_stopped = is_stopped
        self._token = secrets.token_hex(16)  # nobody has files of these names
        self._moved = 0

    def run(self) -> None:
        for name, is_folder in self._entries(self._top):
            if is_folder:
                self._empty(name)
            else:
                os.unlink(name, dir_fd=self._top)

    def _empty(self, name: str) -> None:
        """Bring the folders in it up to the top, where ``run`` finds them; the rest goes."""
        folder = os.open(name, _FOLDER, dir_fd=self._top)
        try:
            for inner, is_folder in self._entries(folder):
                if is_folder:
                    self._moved += 1
                    fresh = f"{self._token}-{self._moved}"
                    os.rename(inner, fresh, src_dir_fd=folder, dst_dir_fd=self._top)
                else:
                    os.unlink(inner, dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=self._top)

    def _entries(self, folder: int) -> Iterator[tuple[str, bool]]:
        """Each name in it, and whether it is a folder; the caller removes each. A few at a time:
        a listing that is changed under way may leave names out."""
        while found := self._some(folder):
            for one in found:
                if self._is_stopped():
                    raise StoppedError
                yield one

    def _some(self, folder: int) -> list[tuple[str, bool]]:
        with os.scandir(folder) as entries:
            few = itertools.islice(entries, _AT_A_TIME)
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in few]


class FolderRemover:
    """Takes folders away at once and removes them on a thread of its own, one after the other.

    ``folder`` is on the same file system. What is left in it when the process ends is removed
    after the next ``open``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="livesize-removal")

    def open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.iterdir()):
            self._thread.submit(self._remove, path)

    def close(self) -> None:
        self._stop.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def take(self, path: Path) -> None:
        """It is gone when this returns. Harmless where there is none. What cannot be renamed, on a
        disk that has no room for a name for instance, is removed where it is, and waited for."""
        place = self._folder / secrets.token_hex(16)
        try:
            path.rename(place)
        except OSError:
            self._remove(path)
        else:
            self._thread.submit(self._remove, place)

    def _remove(self, path: Path) -> None:
        try:
            remove_tree(path, self._stop.is_set)
        except StoppedError:
            return
        except OSError as failure:
            log.warning("not removed", path=str(path), reason=str(failure))
