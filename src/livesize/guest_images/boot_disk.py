"""Makes a disk that a BIOS boots from, out of a tree of files: no loop device, no mount.

The first sector is GRUB's own boot.img with a partition table written over its end; GRUB's core
image follows it, where boot.img looks for it; then comes one partition with an ext4 file system,
which mke2fs fills from the tree. Only the tools that the tree itself brings decide what GRUB is.
"""

from __future__ import annotations

import struct
from pathlib import Path

from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.tools import run_tool

SECTOR_BYTES = 512
PARTITION_START = 1024 * 1024 // SECTOR_BYTES
"""The first MiB is the boot loader's."""
_CODE_BYTES = 440  # of the first sector; then the disk's signature and the table
_TABLE_OFFSET = 446
_LINUX, _ACTIVE = 0x83, 0x80
_NO_CYLINDERS = b"\xfe\xff\xff"  # too large to be said in cylinders, heads and sectors
# What every GRUB since 2012 can read, whatever this machine's mke2fs would choose by itself.
_EXT4 = (
    *("none", "has_journal", "ext_attr", "resize_inode", "dir_index", "filetype", "extent"),
    *("64bit", "flex_bg", "sparse_super", "large_file", "huge_file", "dir_nlink", "extra_isize"),
)


def make_disk(tree: Path, boot_image: bytes, core_image: bytes, uuid: str, disk: Path) -> None:
    """A sparse raw disk with everything below ``tree``; the file ``disk`` exists and has its size,
    a multiple of a MiB. ``uuid`` is the file system's."""
    size_bytes = disk.stat().st_size
    blocks_kib = size_bytes // 1024 - PARTITION_START * SECTOR_BYTES // 1024
    offset = PARTITION_START * SECTOR_BYTES
    extended = f"offset={offset},hash_seed={uuid},lazy_itable_init=1,lazy_journal_init=1"
    command = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", ",".join(_EXT4), "-U", uuid, "-m", "1"]
    run_tool([*command, "-E", extended, "-d", str(tree), str(disk), f"{blocks_kib}k"], disk.parent)
    with disk.open("r+b") as file:
        file.write(boot_sectors(boot_image, core_image, size_bytes // SECTOR_BYTES))


def boot_sectors(boot_image: bytes, core_image: bytes, sectors: int) -> bytes:
    """What stands before the partition. Pure.

    boot.img loads the second sector, and what grub-mkimage put there loads the rest behind it:
    both say so unless grub-install tells them otherwise."""
    if len(boot_image) != SECTOR_BYTES:
        raise GuestImageError(f"GRUB's boot.img has {len(boot_image)} bytes, not {SECTOR_BYTES}")
    most_bytes = (PARTITION_START - 1) * SECTOR_BYTES
    if not 0 < len(core_image) <= most_bytes:
        raise GuestImageError(f"GRUB's core image has {len(core_image)} bytes of {most_bytes}")
    entry = struct.pack(
        "<B3sB3sII",
        *(_ACTIVE, _NO_CYLINDERS, _LINUX, _NO_CYLINDERS),
        *(PARTITION_START, sectors - PARTITION_START),
    )
    table = entry.ljust(SECTOR_BYTES - 2 - _TABLE_OFFSET, b"\0") + b"\x55\xaa"
    return boot_image[:_CODE_BYTES].ljust(_TABLE_OFFSET, b"\0") + table + core_image


def convert_to_qcow2(disk: Path, target: Path) -> None:
    """Holes stay holes."""
    run_tool(
        ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(disk), str(target)], target.parent
    )
