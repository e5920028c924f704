"""Runs the programs that make guest images, each for a bounded time, and says what they lack."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from livesize.guest_images.errors import GuestImageError

TOOL_SECONDS = 300
# Those that make file systems are here, also where a user's PATH leaves them out.
_SYSTEM_PATHS = "/usr/sbin:/sbin:/usr/bin:/bin"
_PACKAGES = {"mke2fs": "e2fsprogs", "qemu-img": "qemu-utils", "perl": "perl", "chroot": "coreutils"}
_SHOWN_CHARACTERS = 2000


def run_tool(command: list[str], folder: Path, timeout_seconds: int = TOOL_SECONDS) -> str:
    """What it printed. Raises GuestImageError with the end of what it said went wrong."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=tool_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=timeout_seconds,
        )
    except FileNotFoundError as failure:
        raise GuestImageError(lacks(command[0])) from failure
    except subprocess.TimeoutExpired as failure:
        raise GuestImageError(
            f"{' '.join(command)} took longer than {timeout_seconds} s"
        ) from failure
    except subprocess.CalledProcessError as failure:
        told = failure.stderr.strip()[-_SHOWN_CHARACTERS:]
        raise GuestImageError(f"{' '.join(command)}: {told}") from failure
    return done.stdout


def tool_environment() -> dict[str, str]:
    """Messages in English, since some are read here."""
    path = os.environ.get("PATH", "")
    return {**os.environ, "PATH": f"{path}:{_SYSTEM_PATHS}".lstrip(":"), "LC_ALL": "C.UTF-8"}


def lacks(program: str) -> str:
    package = _PACKAGES.get(program)
    remedy = f"; as root, apt-get install {package}" if package else ""
    return f"guest images need {program}, which is not here{remedy}"
