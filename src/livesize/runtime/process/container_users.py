"""Finds the user of a container in the container's own files; a part of the launcher (launch.py).

What an image contains is not trusted: only regular files are read, up to a size. As in launch.py,
every import counts.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_TABLE_BYTES = 1 << 20  # of /etc/passwd and /etc/group
NO_USER = 0xFFFFFFFF  # (uid_t) -1 names no user


class LaunchError(Exception):
    """The sentence the caller gets."""


def find_user(config: dict[str, Any]) -> tuple[int, int, str]:
    """uid, gid and home; a user given by the pod wins over the image's user and group."""
    user, _, group = config["user"].partition(":")
    if config["uid"] is not None:
        user, group = str(config["uid"]), ""
    uid, gid, home = lookup_user(user or "0")
    if group:
        gid = lookup_group(group)
    gid = gid if config["gid"] is None else config["gid"]
    if config.get("rootless") and (uid or gid or config["groups"]):
        raise LaunchError(
            f"user {uid} and group {gid} do not exist here: without root, containers run as user"
            " and group 0 of a namespace of their own, which are who started livesize"
        )
    return uid, gid, home


def lookup_user(user: str) -> tuple[int, int, str]:
    """By name, or by number: what is a number is never a name."""
    wanted = number(user)
    for fields in table("/etc/passwd"):
        if len(fields) < 6:
            continue
        uid, gid = number(fields[2]), number(fields[3])
        if uid is None or gid is None:
            continue
        if uid == wanted or (wanted is None and fields[0] == user):
            return uid, gid, fields[5] or "/"
    if wanted is None:
        raise LaunchError(f"the image has no user {user!r}")
    return wanted, 0, "/" if wanted else "/root"


def lookup_group(group: str) -> int:
    wanted = number(group)
    if wanted is not None:
        return wanted
    for fields in table("/etc/group"):
        gid = number(fields[2]) if len(fields) >= 3 else None
        if gid is not None and fields[0] == group:
            return gid
    raise LaunchError(f"the image has no group {group!r}")


def number(word: str) -> int | None:
    """A uid or gid; None: the word is none."""
    if not word.isascii() or not word.isdigit() or len(word) > len(str(NO_USER)):
        return None
    return int(word) if int(word) < NO_USER else None


def table(path: str) -> Iterator[list[str]]:
    """The lines of a file of the container's, in fields; none where there is no such file."""
    content = read_table(path)
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield content[start:end].decode("utf-8", "replace").split(":")
        start = end + 1


def read_table(path: str) -> bytes:
    """A link may lead anywhere in the container: to a device without end, a pipe nobody fills."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except OSError:
        return b""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise LaunchError(f"{path} of the container is not a regular file")
        if found.st_size > MOST_TABLE_BYTES:
            raise LaunchError(f"{path} of the container is larger than 1 MiB")
        return os.read(descriptor, found.st_size)
    finally:
        os.close(descriptor)
