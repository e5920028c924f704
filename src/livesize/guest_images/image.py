"""Composes a guest's first file system from a list of what is in it, and keeps it in a cache.

Every guest has busybox, the folders and devices a kernel expects, and an ``/init`` that mounts
the kernel's file systems, loads the modules and then does what the recipe says. Programs are in
usr/bin and so on; bin, sbin and lib are links, as in today's distributions. An image's file is
named by its content: nothing is written where it exists already.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from livesize.guest_images.cpio import (
    CpioFile,
    CpioFolder,
    CpioLink,
    Device,
    Entries,
    Entry,
    HostFile,
    digest,
    write_cpio,
)
from livesize.guest_images.kernel import GuestKernel
from livesize.guest_images.modules import module_entries, select_modules
from livesize.runtime.oci import find_static_busybox

MODULES_FOLDER = "usr/lib/livesize/modules"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MOST_CACHED = 3  # images of one name in the cache

# The root is mounted upon itself and entered again: a process whose root is the kernel's first
# file system itself cannot pivot_root, and containers must.
_INIT = """\
#!/usr/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
if [ -z "$LIVESIZE_ENTERED" ]; then
  busybox mount --bind / /mnt
  cd /mnt
  busybox mount --move . /
  LIVESIZE_ENTERED=1 exec busybox chroot . /init
fi
unset LIVESIZE_ENTERED
cd /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
for module in /{modules}/*.ko; do
  [ -e "$module" ] && insmod "$module"
done
ip link set lo up 2>/dev/null
{body}
poweroff -f
"""


class GuestRecipe(msgspec.Struct, frozen=True):
    """What is in a guest. ``commands`` are lines of shell; the guest powers off after them."""

    name: str
    commands: str
    modules: tuple[str, ...] = ()
    entries: Mapping[str, Entry] = {}


def build_image(recipe: GuestRecipe, kernel: GuestKernel, cache_dir: Path) -> Path:
    """The initial file system for QEMU's -initrd, from the cache or written into it."""
    entries = compose(recipe, kernel)
    images = cache_dir / "images" / recipe.name
    path = images / f"{digest(entries)[:24]}.cpio"
    if path.exists():
        path.touch()
        return path
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=images, prefix="new-", delete=False) as scratch:
        try:
            write_cpio(scratch, entries)
        except BaseException:
            Path(scratch.name).unlink()
            raise
    Path(scratch.name).rename(path)
    _forget_old(images)
    return path


def compose(recipe: GuestRecipe, kernel: GuestKernel) -> dict[str, Entry]:
    """Everything that is in the guest, by path. What the recipe names wins."""
    loaded = module_entries(select_modules(kernel, recipe.modules), MODULES_FOLDER)
    init = _INIT.format(modules=MODULES_FOLDER, body=recipe.commands.rstrip())
    own: dict[str, Entry] = {path: CpioFile(content) for path, content in loaded.items()}
    own["init"] = CpioFile(init.encode(), 0o755)
    return {**_skeleton(), **_busybox(), **own, **merge_usr(recipe.entries)}


def merge_usr(entries: Entries) -> dict[str, Entry]:
    """bin/x becomes usr/bin/x: the same file by either name once bin is a link to usr/bin."""
    merged: dict[str, Entry] = {}
    for name, entry in entries.items():
        top, slash, _ = name.partition("/")
        if top not in _MERGED:
            merged[name] = entry
        elif slash:
            merged[f"usr/{name}"] = entry
    return merged


def _skeleton() -> dict[str, Entry]:
    entries: dict[str, Entry] = {name: CpioLink(f"usr/{name}") for name in _MERGED}
    entries |= {f"usr/{name}": CpioFolder() for name in _MERGED}
    entries |= {name: CpioFolder() for name in ("dev", "proc", "sys", "run", "mnt", "etc", "var")}
    entries |= {"root": CpioFolder(0o700), "tmp": CpioFolder(0o1777)}
    entries |= {"dev/console": Device(5, 1), "dev/null": Device(1, 3, 0o666)}
    entries |= {
        "etc/passwd": CpioFile(b"root:x:0:0:root:/root:/bin/sh\n"),
        "etc/group": CpioFile(b"root:x:0:\n"),
    }
    return entries


def _busybox() -> dict[str, Entry]:
    program = find_static_busybox()
    listed = subprocess.run([str(program), "--list"], capture_output=True, text=True, check=True)
    entries: dict[str, Entry] = {
        f"usr/bin/{name}": CpioLink("busybox") for name in listed.stdout.split()
    }
    entries["usr/bin/busybox"] = HostFile(program, 0o755)
    return entries


def _forget_old(images: Path) -> None:
    """A running guest has read its image: removing the file does not disturb it."""
    ours = sorted(images.glob("*.cpio"), key=lambda path: path.stat().st_mtime_ns)
    for path in ours[:-_MOST_CACHED]:
        path.unlink(missing_ok=True)
