"""Finds where this machine's apt gets a Debian from, and what stands there now.

Nothing here knows a mirror: apt itself says which ones it is set to, and its own helper fetches
from them, with whatever proxies and certificates the machine has. A mirror of one Debian usually
has the others too; whether it has the one that is asked for is seen in seconds, before minutes are
spent on it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import parse_fields
from livesize.guest_images.tools import run_tool

_FORMAT = "$(IDENTIFIER)\t$(ORIGIN)\t$(LABEL)\t$(REPO_URI)"
_HELPER = "/usr/lib/apt/apt-helper"
_FETCH_SECONDS = 60
_MAIN, _SECURITY = "Debian", "Debian-Security"


class Mirrors(msgspec.Struct, frozen=True):
    """Addresses, as apt is set to them; the first that works is taken."""

    main: tuple[str, ...] = ()
    security: tuple[str, ...] = ()


class Suite(msgspec.Struct, frozen=True):
    """One release at one mirror. ``release``: what it says of itself, with the date it was made
    and the digests of all it has."""

    mirror: str
    name: str
    release: str

    @property
    def line(self) -> str:
        """As in a sources.list."""
        return f"deb {self.mirror} {self.name} main"


def find_mirrors() -> Mirrors:
    command = ["apt-get", "indextargets", "--format", _FORMAT]
    return parse_mirrors(run_tool(command, Path("/")).splitlines())


def parse_mirrors(lines: Iterable[str]) -> Mirrors:
    """Of what apt says: identifier, origin, label and address, with tabs between. Pure."""
    found: dict[str, dict[str, None]] = {_MAIN: {}, _SECURITY: {}}
    for line in lines:
        fields = line.split("\t")
        if len(fields) == 4 and fields[0] == "Packages" and fields[1] == _MAIN:
            found.get(fields[2], {})[fields[3].rstrip("/")] = None
    return Mirrors(tuple(found[_MAIN]), tuple(found[_SECURITY]))


def find_suites(codename: str, title: str) -> tuple[Suite, ...]:
    """The release itself, with its updates and security updates where the machine has them."""
    mirrors = find_mirrors()
    if not mirrors.main:
        raise GuestImageError(
            f"this machine's apt sources have no {title}: they name no mirror of Debian; as root,"
            " add one below /etc/apt/sources.list.d, and run apt-get update"
        )
    said = []
    for mirror in mirrors.main:
        try:
            release = _fetch_release(mirror, codename)
        except GuestImageError as failure:
            said.append(str(failure))
            continue
        optional = [(mirror, f"{codename}-updates")]
        optional += [(one, f"{codename}-security") for one in mirrors.security]
        found = [_found(*one) for one in optional]
        return (Suite(mirror, codename, release), *(one for one in found if one is not None))
    raise GuestImageError(
        f"this machine's apt sources have no {title} ({codename}), or cannot be reached:"
        f" {'; '.join(said)}"
    )


def _found(mirror: str, name: str) -> Suite | None:
    try:
        return Suite(mirror, name, _fetch_release(mirror, name))
    except GuestImageError:
        return None


def _fetch_release(mirror: str, suite: str) -> str:
    """Its signature is checked later, by the apt that installs from it."""
    if shutil.which(_HELPER) is None:
        raise GuestImageError("guests of Debian can be built only where there is apt")
    with tempfile.TemporaryDirectory(prefix="livesize-apt-") as folder:
        target = Path(folder, "InRelease")
        source = f"{mirror}/dists/{suite}/InRelease"
        run_tool([_HELPER, "download-file", source, str(target)], Path(folder), _FETCH_SECONDS)
        release = target.read_text(errors="replace")
    if parse_fields(release.partition("\n\n")[2]).get("Origin") != _MAIN:
        raise GuestImageError(f"{source} is not Debian's")
    return release
