"""Makes the folders of a data directory, gives each to its owner, and locks them.

Each folder has the narrowest rights that work. One process at a time holds each lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.accounts import Account

_POLL_SECONDS = 0.01


class UnusableDirectoryError(Exception):
    """Nothing can be kept there."""


class AlreadyRunningError(Exception):
    """Another process uses this data directory."""


def prepare(directory: DataDirectory, account: Account | None) -> None:
    """Make the folders, each with the narrowest rights that work."""
    prepare_control(directory, account)
    prepare_agent(directory)
    _make_private(directory.logs)


def prepare_control(directory: DataDirectory, account: Account | None) -> None:
    """Those of an API server."""
    _make_root(directory)
    _make_private(directory.control)
    if account is not None:
        give_to(directory.control, account)


def prepare_agent(directory: DataDirectory) -> None:
    _make_root(directory)
    _make_private(directory.agent)


def _make_root(directory: DataDirectory) -> None:
    # The control plane passes through; only names it knows.
    _make(directory.root, 0o711)


def _make_private(folder: Path) -> None:
    _make(folder, 0o700)


def _make(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
    except PermissionError:
        raise
    except OSError as failure:
        raise UnusableDirectoryError(
            f"{failure.filename} cannot be made: {failure.strerror}; choose another --data-dir"
        ) from failure


def give_to(path: Path, account: Account) -> None:
    """Hand a folder and all in it to ``account``."""
    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    if path.is_dir() and not path.is_symlink():
        for entry in path.iterdir():
            give_to(entry, account)


def may_write(folder: Path, account: Account) -> bool:
    """Whether ``account`` may make files in ``folder``."""
    facts = folder.stat()
    shift = 6 if facts.st_uid == account.uid else 3 if facts.st_gid == account.gid else 0
    return (facts.st_mode >> shift) & 0o3 == 0o3


@contextlib.contextmanager
def exclusive(directory: DataDirectory, *locks: Path) -> Iterator[None]:
    """Hold parts of the data directory for this process alone, by their locks; the kernel lets go
    if we die."""
    with contextlib.ExitStack() as stack:
        for path in locks:
            lock = stack.enter_context(path.open("a"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunningError(
                    f"another livesize uses {directory.root}; stop it, or choose another --data-dir"
                ) from None
        yield


@contextlib.contextmanager
def after_last_control_plane(directory: DataDirectory, seconds: float) -> Iterator[int]:
    """The control plane of a killed `livesize up` ends by itself a moment after it, and until then
    has the socket and the store: wait for that. Yields the descriptor that ours inherits."""
    pause = threading.Event()  # never set: waiting on it is sleeping
    with directory.control_plane_lock.open("a") as lock:
        for _ in range(int(seconds / _POLL_SECONDS)):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            pause.wait(_POLL_SECONDS)
        else:
            raise AlreadyRunningError(
                f"the control plane of the last start still runs after {seconds:.0f} s; end it"
                f" (fuser {directory.control_plane_lock} names it), and try again"
            )
        yield lock.fileno()
