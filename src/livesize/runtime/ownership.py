"""Whom the pods on this machine belong to: a node uid, which stays with its data directory.

    DIR/agent/node.json        the uid of the node that keeps its files here, and its root group
    /run/livesize/nodes/NAME   which data directory runs the node of that name; locked while it does

Control groups, sandboxes and domains carry the uid, so an agent never takes another's for leftovers
of its own. The lock dies with the process that holds it; what is written in the file stays, so that
a second data directory learns whose node it would be, also when the first has died. Files below
/run are gone after a reboot, as are the pods.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from livesize.runtime.interface import RuntimeCallError

ROOT_GROUP = "livesize"
_UID_BYTES = 8


class NodeIdentity(msgspec.Struct, frozen=True):
    """``group`` holds the node's name as it was at first: a node that is renamed keeps it."""

    uid: str
    group: str

    @property
    def container_root(self) -> str:
        return f"{ROOT_GROUP}/{self.group}"

    @property
    def vm_root(self) -> str:
        return f"{self.container_root}-vms"


class NodeOwner(msgspec.Struct, frozen=True):
    """Who runs a node, or ran it last. ``endpoint``: of a containerd that is not its own."""

    node: str
    identity: NodeIdentity
    directory: str
    pid: int
    endpoint: str = ""


def read_identity(path: Path) -> NodeIdentity | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeIdentity)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as failure:
        raise RuntimeCallError(
            f"{path} cannot be read: {failure}. It says which pods on this machine are this node's:"
            " bring it back from a backup, or stop the pods and remove it"
        ) from failure


def keep_identity(path: Path, node: str) -> NodeIdentity:
    """The one noted in ``path``; a new one is on disk before anything carries it."""
    known = read_identity(path)
    if known is not None:
        return known
    uid = secrets.token_hex(_UID_BYTES)
    identity = NodeIdentity(uid, f"{node}.{uid}")
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(identity))
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return identity


class NodeLocks:
    """One file for each node's name, in one folder for the whole machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def held(self, owner: NodeOwner, left: Callable[[NodeOwner], bool]) -> Iterator[None]:
        """Run the node of this name, and no other does. ``left``: whether pods of a dead owner
        are still on this machine. Raises RuntimeCallError, with who has it and what to do."""
        with self._locked(owner.node) as file:
            if file is None:
                raise RuntimeCallError(self._lives(owner.node))
            before = _parse(file)
            if before is not None and before.identity.uid != owner.identity.uid and left(before):
                raise RuntimeCallError(_has_left(before))
            copied = self._copy_of(owner)
            if copied is not None:
                raise RuntimeCallError(_is_copy(owner, copied))
            _write(file, msgspec.json.encode(owner))
            try:
                yield
            finally:
                if not left(owner):
                    self.forget(owner.node)

    @contextlib.contextmanager
    def dead(self, node: str) -> Iterator[NodeOwner | None]:
        """Who ran the node last; nobody starts it meanwhile. Raises where the owner lives."""
        if not self._path(node).exists():
            yield None
            return
        with self._locked(node) as file:
            if file is None:
                raise RuntimeCallError(self._lives(node, to_clean=True))
            yield _parse(file)

    def forget(self, node: str) -> None:
        """Nothing of its owner is left. Only who holds it may do so."""
        self._path(node).unlink(missing_ok=True)

    def owners(self) -> list[NodeOwner]:
        """Of all nodes of this machine, dead or alive."""
        paths = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        found = (_load(path) for path in paths)
        return [owner for owner in found if owner is not None]

    def _path(self, node: str) -> Path:
        return self._folder / node

    @contextlib.contextmanager
    def _locked(self, node: str) -> Iterator[int | None]:
        """None: another process holds it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = self._open(node, flags)
        except OSError as failure:
            raise RuntimeCallError(
                f"{self._path(node)}, which says who runs node {node}, cannot be opened:"
                f" {failure.strerror}"
            ) from failure
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            yield file
        finally:
            os.close(file)

    def _open(self, node: str, flags: int) -> int:
        """The file that has the name now: who held the one before may have removed it."""
        while True:
            file = os.open(self._path(node), flags, 0o600)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self._path(node).stat()):
                    return file
            os.close(file)

    def _copy_of(self, owner: NodeOwner) -> NodeOwner | None:
        """A living node with the same uid: one data directory is a copy of the other."""
        for other in self.owners():
            if other.node != owner.node and other.identity.uid == owner.identity.uid:
                with self._locked(other.node) as file:
                    if file is None:
                        return other
        return None

    def _lives(self, node: str, *, to_clean: bool = False) -> str:
        owner = _load(self._path(node))
        who = "another livesize runs it" if owner is None else _who(owner)
        if to_clean:
            return f"node {node} is alive: {who}. Stop it first; nothing was removed"
        return (
            f"node {node} runs on this machine already: {who}. Choose another name with"
            " --node-name, or stop that one first"
        )


def _who(owner: NodeOwner) -> str:
    return f"process {owner.pid} with --data-dir {owner.directory}"


def _has_left(owner: NodeOwner) -> str:
    return (
        f"node {owner.node} belongs to --data-dir {owner.directory}, which does not run now and"
        " has left its pods on this machine. Start it with that directory, or choose another name"
        f" with --node-name, or remove what it left: livesize clean --node-name {owner.node}"
    )


def _is_copy(owner: NodeOwner, other: NodeOwner) -> str:
    return (
        f"--data-dir {owner.directory} is a copy of {other.directory}, which runs as node"
        f" {other.node} ({_who(other)}): both would take the same pods for their own. Choose an"
        f" empty --data-dir, or remove {owner.directory}/agent"
    )


def _parse(file: int) -> NodeOwner | None:
    return _decoded(os.pread(file, 1 << 16, 0))


def _load(path: Path) -> NodeOwner | None:
    try:
        return _decoded(path.read_bytes())
    except FileNotFoundError:
        return None  # let go meanwhile


def _decoded(content: bytes) -> NodeOwner | None:
    """None: nobody has written it, or not all of it."""
    try:
        return msgspec.json.decode(content, type=NodeOwner)
    except msgspec.DecodeError:
        return None


def _write(file: int, content: bytes) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, content, 0)
