"""Unpacks the layers of an image into a folder, trusting nothing that they say.

No entry lands outside the folder: every parent is resolved inside it, symbolic links included,
the way the container itself will see them. Device files and fifos are left out. Whiteouts remove
what lower layers brought (OCI image-spec, layer.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from livesize.runtime.interface import RuntimeCallError

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_MAXIMUM_LINKS = 40


class UnpackError(RuntimeCallError):
    """The layer is not one that can be unpacked safely."""


class UnpackLimits(msgspec.Struct, frozen=True):
    """Of one layer: a small archive may claim to be very large."""

    entries: int = 1_000_000
    total_bytes: int = 32 * 1024**3


DEFAULT_LIMITS = UnpackLimits()


def unpack_layer(source: IO[bytes], root: Path, limits: UnpackLimits = DEFAULT_LIMITS) -> None:
    """Apply one layer, plain or gzip, onto ``root``."""
    made: set[Path] = set()
    entries = total_bytes = 0
    try:
        with tarfile.open(fileobj=source, mode="r|*") as archive:
            for member in archive:
                entries += 1
                total_bytes += member.size if member.isreg() else 0
                if entries > limits.entries or total_bytes > limits.total_bytes:
                    raise UnpackError(
                        f"the layer is larger than allowed: more than {limits.entries} entries"
                        f" or {limits.total_bytes} bytes"
                    )
                _apply_member(archive, member, root, made)
    except (tarfile.TarError, EOFError) as failure:
        raise UnpackError(f"the layer is not a readable tar file: {failure}") from failure
    except OSError as failure:
        raise UnpackError(f"cannot unpack the layer: {failure}") from failure


def resolve_inside(root: Path, name: str) -> Path:
    """The path of ``name`` as a process with ``root`` for its root would see it, all links
    followed; what does not exist is taken as it stands."""
    todo = list(reversed(_parts(name)))
    resolved: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            del resolved[-1:]
            continue
        here = root.joinpath(*resolved, part)
        if not here.is_symlink():
            resolved.append(part)
            continue
        links += 1
        if links > _MAXIMUM_LINKS:
            raise UnpackError(f"{name}: too many symbolic links")
        target = str(here.readlink())
        if target.startswith("/"):
            resolved = []
        todo.extend(reversed(_parts(target)))
    return root.joinpath(*resolved)


def _parts(name: str) -> list[str]:
    return [part for part in PurePosixPath(name).parts if part not in ("/", "//", ".")]


def _apply_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path, made: set[Path]
) -> None:
    parts = _parts(member.name)
    if not parts:
        return
    if ".." in parts or "\0" in member.name:
        raise UnpackError(f"{member.name}: an entry of a layer may not point upwards")
    parent = resolve_inside(root, "/".join(parts[:-1]))
    parent.mkdir(parents=True, exist_ok=True)
    leaf = parts[-1]
    if leaf == _OPAQUE:
        _remove_lower(parent, made)
    elif leaf.startswith(_WHITEOUT):
        hidden = leaf.removeprefix(_WHITEOUT)
        if hidden in ("", ".", ".."):
            raise UnpackError(f"{member.name}: a whiteout must name an entry of its folder")
        _remove(parent / hidden)
    else:
        path = parent / leaf
        if _write_member(archive, member, path, root):
            made.add(path)


def _write_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, root: Path
) -> bool:
    """Says whether there is an entry now; devices and fifos are left out."""
    if member.isdir():
        if path.is_symlink() or not path.is_dir():
            _remove(path)
            path.mkdir()
    elif member.issym():
        _remove(path)
        path.symlink_to(member.linkname)
    elif member.islnk():
        source = _hard_link_source(member, root)
        if source != path:
            _remove(path)
            os.link(source, path, follow_symlinks=False)
        return True  # owner and mode are those of the first name
    elif member.isreg():
        _remove(path)
        _copy_content(archive, member, path)
    else:
        return False
    _set_attributes(member, path)
    return True


def _hard_link_source(member: tarfile.TarInfo, root: Path) -> Path:
    parts = _parts(member.linkname)
    if not parts or ".." in parts:
        raise UnpackError(f"{member.name}: a hard link may not point upwards")
    source = resolve_inside(root, "/".join(parts[:-1])) / parts[-1]
    if not source.is_symlink() and not source.is_file():
        raise UnpackError(f"{member.name}: hard link to {member.linkname}, which is no file")
    return source


def _copy_content(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None
    with content, path.open("xb") as target:
        shutil.copyfileobj(content, target, 1024 * 1024)


def _set_attributes(member: tarfile.TarInfo, path: Path) -> None:
    if os.geteuid() == 0:
        try:
            os.chown(path, member.uid, member.gid, follow_symlinks=False)
        except OSError as failure:
            if failure.errno != errno.EINVAL:  # of a user that this user namespace does not have
                raise
    if not member.issym():
        path.chmod(stat.S_IMODE(member.mode))
    os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)


def _remove_lower(folder: Path, made: set[Path]) -> None:
    """An opaque folder hides what lower layers put there, not what this layer did."""
    for entry in list(folder.iterdir()):
        if entry not in made:
            _remove(entry)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
