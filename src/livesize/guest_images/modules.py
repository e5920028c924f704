"""Chooses kernel modules and what they depend on, in the order in which they can be loaded.

Dependencies are read from the modules themselves ("depends=" in their .modinfo section): the
table modules.dep does not exist before a kernel is installed, and ours is only unpacked. Modules
that the kernel has built in are left out; compressed ones are unpacked here, since the guest may
have no tool for it.
"""

from __future__ import annotations

import lzma
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import GuestKernel

_SUFFIXES = re.compile(r"\.ko(?:\.xz|\.zst)?$")
_DEPENDS = re.compile(rb"\0depends=([\w,-]*)\0")


class Module(msgspec.Struct, frozen=True):
    name: str
    content: bytes


def select_modules(kernel: GuestKernel, names: Iterable[str]) -> tuple[Module, ...]:
    """The named modules and what they need, dependencies first."""
    files = {_name(path): path for path in kernel.modules.rglob("*.ko*") if _is_module(path)}
    builtin = frozenset(_name(Path(line)) for line in _builtin_lines(kernel))
    content: dict[str, bytes] = {}

    def dependencies(name: str) -> tuple[str, ...]:
        path = files.get(name)
        if path is None:
            raise GuestImageError(f"kernel {kernel.release} has no module {name}")
        content[name] = _read(path)
        return parse_depends(content[name])

    order = load_order(names, dependencies, builtin)
    return tuple(Module(name, content[name]) for name in order)


def load_order(
    names: Iterable[str],
    dependencies: Callable[[str], tuple[str, ...]],
    builtin: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Depth first, each module once. ``dependencies`` is asked once for each."""
    order: dict[str, None] = {}
    open_names: list[str] = []

    def visit(name: str) -> None:
        if name in builtin or name in order:
            return
        if name in open_names:
            raise GuestImageError(f"modules depend on each other: {' '.join([*open_names, name])}")
        open_names.append(name)
        for needed in dependencies(name):
            visit(needed)
        open_names.pop()
        order[name] = None

    for name in names:
        visit(_plain(name))
    return tuple(order)


def module_entries(modules: Iterable[Module], folder: str) -> Mapping[str, bytes]:
    """Path to content; the names sort in the order of loading."""
    return {
        f"{folder}/{number:03}-{module.name}.ko": module.content
        for number, module in enumerate(modules)
    }


def parse_depends(content: bytes) -> tuple[str, ...]:
    found = _DEPENDS.search(content)
    names = found[1].decode().split(",") if found else []
    return tuple(_plain(name) for name in names if name)


def _builtin_lines(kernel: GuestKernel) -> list[str]:
    try:
        return (kernel.modules / "modules.builtin").read_text().split()
    except FileNotFoundError:
        return []


def _is_module(path: Path) -> bool:
    return _SUFFIXES.search(path.name) is not None


def _name(path: Path) -> str:
    return _plain(_SUFFIXES.sub("", path.name))


def _plain(name: str) -> str:
    """The kernel takes "-" and "_" in a module's name for the same."""
    return name.replace("-", "_")


def _read(path: Path) -> bytes:
    match path.suffix:
        case ".xz":
            return lzma.decompress(path.read_bytes())
        case ".zst":
            return _unpack_zstd(path)
        case _:
            return path.read_bytes()


def _unpack_zstd(path: Path) -> bytes:
    command = ["zstd", "--decompress", "--stdout", "--quiet", str(path)]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except FileNotFoundError as failure:
        raise GuestImageError(f"{path.name} needs the program zstd; install it") from failure
    except subprocess.CalledProcessError as failure:
        raise GuestImageError(f"{path} cannot be unpacked by zstd") from failure
