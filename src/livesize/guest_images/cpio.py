"""Writes cpio archives in the "newc" format, which the kernel unpacks as its first file system.

The same entries give the same bytes: names are sorted, times are zero and everything belongs to
root. Folders above an entry are written even where nobody named them. Neither root nor a tool is
needed, not even for device nodes. Format: Linux, Documentation/driver-api/early-userspace/
buffer-format.rst.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeAlias

import msgspec

from livesize.guest_images.errors import GuestImageError

_MAGIC = b"070701"
_END = "TRAILER!!!"
_ALIGNMENT = 4
_LARGEST_FILE = 0xFFFFFFFF


class CpioFile(msgspec.Struct, frozen=True, tag=True):
    content: bytes
    mode: int = 0o644


class HostFile(msgspec.Struct, frozen=True, tag=True):
    """A file whose content is that of a file of this machine. mode None: the same mode."""

    path: Path
    mode: int | None = None


class CpioLink(msgspec.Struct, frozen=True, tag=True):
    """A symbolic link."""

    target: str


class CpioFolder(msgspec.Struct, frozen=True, tag=True):
    mode: int = 0o755


class Device(msgspec.Struct, frozen=True, tag=True):
    """A character device."""

    major: int
    minor: int
    mode: int = 0o600


Entry: TypeAlias = CpioFile | HostFile | CpioLink | CpioFolder | Device
Entries: TypeAlias = Mapping[str, Entry]  # by path, without a slash in front


class ByteSink(Protocol):
    def write(self, content: bytes, /) -> object: ...


class _Header(msgspec.Struct, frozen=True):
    mode: int
    size: int = 0
    major: int = 0
    minor: int = 0


def write_cpio(sink: ByteSink, entries: Entries) -> None:
    """Write the archive to ``sink``, parents before children."""
    number = 0
    for number, (name, entry) in enumerate(sorted(with_parents(entries).items()), start=1):
        _write_entry(sink, number, name, entry)
    _write_header(sink, number + 1, _END, _Header(mode=0))


def digest(entries: Entries) -> str:
    """The SHA-256 of the archive, without writing it anywhere."""
    hashing = _Hashing()
    write_cpio(hashing, entries)
    return hashing.sha256.hexdigest()


def with_parents(entries: Entries) -> dict[str, Entry]:
    """The entries, and a folder for each parent that has no entry of its own."""
    complete = {_checked(name): entry for name, entry in entries.items()}
    for name in entries:
        for parent in PurePosixPath(name).parents:
            if parent.name:
                complete.setdefault(str(parent), CpioFolder())
    return complete


class _Hashing:
    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, content: bytes, /) -> None:
        self.sha256.update(content)


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name in {".", _END}:
        raise GuestImageError(f"{name!r} cannot be a path in a guest image")
    return name


def _write_entry(sink: ByteSink, number: int, name: str, entry: Entry) -> None:
    match entry:
        case CpioFile(content=content, mode=mode):
            _write_header(sink, number, name, _Header(stat.S_IFREG | mode, len(content)))
            _write_padded(sink, content)
        case HostFile():
            _write_host_file(sink, number, name, entry)
        case CpioLink(target=target):
            content = target.encode()
            _write_header(sink, number, name, _Header(stat.S_IFLNK | 0o777, len(content)))
            _write_padded(sink, content)
        case CpioFolder(mode=mode):
            _write_header(sink, number, name, _Header(stat.S_IFDIR | mode))
        case Device(major=major, minor=minor, mode=mode):
            header = _Header(stat.S_IFCHR | mode, major=major, minor=minor)
            _write_header(sink, number, name, header)


def _write_host_file(sink: ByteSink, number: int, name: str, entry: HostFile) -> None:
    with entry.path.open("rb") as source:
        found = entry.path.stat()
        if found.st_size > _LARGEST_FILE:
            raise GuestImageError(f"{entry.path} is too large for a guest image")
        mode = stat.S_IMODE(found.st_mode) if entry.mode is None else entry.mode
        _write_header(sink, number, name, _Header(stat.S_IFREG | mode, found.st_size))
        shutil.copyfileobj(source, sink, 1024 * 1024)
        if source.tell() != found.st_size:
            raise GuestImageError(f"{entry.path} changed while the guest image was written")
        sink.write(_padding(found.st_size))


def _write_header(sink: ByteSink, number: int, name: str, header: _Header) -> None:
    """Thirteen numbers of eight hexadecimal digits, then the name and its zero byte."""
    encoded = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(header.mode) else 1
    owner = group = seconds = device_major = device_minor = checksum = 0
    numbers = (
        *(number, header.mode, owner, group, links, seconds, header.size),
        *(device_major, device_minor, header.major, header.minor, len(encoded), checksum),
    )
    _write_padded(sink, _MAGIC + b"".join(b"%08X" % value for value in numbers) + encoded)


def _write_padded(sink: ByteSink, content: bytes) -> None:
    sink.write(content + _padding(len(content)))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _ALIGNMENT)
