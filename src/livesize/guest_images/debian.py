"""What is in the stock Debian guests, as values. Pure.

They are the distribution as it comes: its cloud kernel with its own options, systemd, udev, its
guest agent and cloud-init. Only what every disk has to say for itself is ours: how it is mounted,
what boots it, and a name. Nothing of this machine is left in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

ARCHITECTURE = "amd64"
DISK_BYTES = 8 * 1024**3
"""What the guest sees; the file holds what is used of it."""
_RECIPE = 1  # raise it when the code that makes disks changes what is on them
_PACKAGES = (
    *("systemd", "systemd-sysv", "udev", "dbus", "kmod", "procps", "iproute2", "netbase"),
    *("linux-image-cloud-amd64", "initramfs-tools", "grub-pc-bin", "grub2-common"),
    *("qemu-guest-agent", "cloud-init", "cloud-guest-utils"),
    *("login", "passwd", "sudo", "e2fsprogs", "ca-certificates", "tzdata"),
)
GRUB_MODULES = (
    *("biosdisk", "part_msdos", "ext2", "search", "search_fs_uuid"),
    *("configfile", "normal", "linux", "echo", "test"),
)
GRUB_PREFIX = "(hd0,msdos1)/boot/grub"
# Of the distribution's own cloud images: the console is that of the machine and its serial line.
_KERNEL_OPTIONS = "console=tty0 console=ttyS0,115200"
_HOST_NAME = "debian"


class Distribution(msgspec.Struct, frozen=True):
    name: str  # on the command line, and of the image
    title: str
    codename: str
    packages: tuple[str, ...] = _PACKAGES


DISTRIBUTIONS: Mapping[str, Distribution] = {
    one.name: one
    for one in (
        Distribution("debian12", "Debian 12", "bookworm"),
        Distribution("debian13", "Debian 13", "trixie"),
    )
}


def recipe_digest(distribution: Distribution) -> str:
    """Changes with everything that decides what is on the disk, other than the packages' own
    versions."""
    files = guest_files("", "")
    values = (_RECIPE, DISK_BYTES, distribution, GRUB_MODULES, GRUB_PREFIX, sorted(files.items()))
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()


def guest_files(release: str, uuid: str) -> dict[str, str]:
    """The files that are ours. ``release``: of the kernel; ``uuid``: of the file system."""
    root = f"root=UUID={uuid}"
    return {
        "boot/grub/grub.cfg": (
            "set timeout=0\n"
            "menuentry Debian {\n"
            f"  search --no-floppy --fs-uuid --set=root {uuid}\n"
            f"  linux /boot/vmlinuz-{release} {root} ro {_KERNEL_OPTIONS}\n"
            f"  initrd /boot/initrd.img-{release}\n"
            "}\n"
        ),
        # For update-grub, which the guest runs when it gets a new kernel.
        "etc/default/grub": (
            "GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_DISTRIBUTOR=Debian\n"
            f'GRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="{_KERNEL_OPTIONS}"\n'
            "GRUB_TERMINAL=console\n"
        ),
        "etc/fstab": f"UUID={uuid} / ext4 errors=remount-ro 0 1\n",
        "etc/hostname": f"{_HOST_NAME}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {_HOST_NAME}\n::1 localhost ip6-localhost\n",
        "etc/machine-id": "",  # each guest makes its own
    }


LEFT_BEHIND = (
    *("etc/resolv.conf", "etc/apt/apt.conf.d/99mmdebstrap", "var/lib/dbus/machine-id"),
    *("var/lib/systemd/random-seed", "var/log/apt", "var/log/bootstrap.log", "var/log/dpkg.log"),
)
"""Of the machine that built it, or of the building."""
