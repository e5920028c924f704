"""The files a VM boots from, found by name and put where its QEMU may read them.

Names are looked up in the images directory; a value with a slash is a path of the machine, which
admission allows to admins only. Symbolic links are resolved first, and a name may not lead out of
the images directory. Kernel and initial file system are copied; a disk gets a layer of the VM's
own above the image, which stays as it is. An image that itself refers to another file is
refused: it could name any file of the machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from livesize.runtime.interface import ImageMissingError, RuntimeCallError
from livesize.runtime.libvirt.daemon import LibvirtDaemon
from livesize.runtime.libvirt.model import Boot, DomainDisk, DomainKernel
from livesize.runtime.libvirt.owners import VmOwner, give
from livesize.runtime.logs.raw import times_path
from livesize.runtime.vm_config import VmConfig

_FORMATS = ("raw", "qcow2")


class VmFiles:
    """All files of one VM, which are its own user's; its folder goes with the pod."""

    def __init__(self, daemon: LibvirtDaemon, uid: str, owner: VmOwner) -> None:
        self._daemon = daemon
        self._owner = owner
        self._folder = daemon.root / "lib" / "vms" / uid
        self._logs = daemon.root / "log" / "vms" / uid

    def log(self, attempt: int) -> Path:
        return self._logs / f"{attempt}.log"

    def prepare(self, vm: VmConfig, attempt: int) -> Boot:
        """Blocks: kernels are copied. The disk of an earlier start is kept."""
        for folder in (self._folder, self._logs):
            folder.mkdir(parents=True, exist_ok=True)
            folder.parent.chmod(0o711)
            give(folder, self._owner, 0o700)
        self._make_log(attempt)
        if vm.disk:
            return DomainDisk(self._daemon.namespace_path(self._disk(vm.disk)))
        return self._kernel(vm)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.rmtree(self._logs, ignore_errors=True)

    def _kernel(self, vm: VmConfig) -> DomainKernel:
        kernel = self._copied(vm.kernel, "kernel")
        initrd = self._copied(vm.initrd, "initrd") if vm.initrd else ""
        return DomainKernel(kernel, initrd, vm.command_line)

    def _copied(self, image: str, name: str) -> str:
        target = self._folder / name
        fresh = self._folder / f"{name}.new"
        shutil.copyfile(resolve_image(image, self._daemon.images_dir), fresh)
        give(fresh, self._owner, 0o400)
        fresh.rename(target)
        return self._daemon.namespace_path(target)

    def _disk(self, image: str) -> Path:
        disk = self._folder / "disk.qcow2"
        if disk.exists():
            give(disk, self._owner, 0o600)  # an older agent's VMs were all one user's
            return disk
        source = resolve_image(image, self._daemon.images_dir)
        kind = _checked_format(source)
        fresh = self._folder / "disk.new"
        # -u: the image is named as QEMU will see it, which is not where it is for us.
        named = self._daemon.namespace_path(source)
        command = ["create", "-q", "-u", "-f", "qcow2", "-b", named, "-F", kind, str(fresh)]
        _qemu_img([*command, str(_virtual_size(source))])
        give(fresh, self._owner, 0o600)
        fresh.rename(disk)
        return disk

    def _make_log(self, attempt: int) -> None:
        """QEMU opens it by itself, with its own user's rights. The last two are kept."""
        log = self.log(attempt)
        log.touch(0o600)
        give(log, self._owner, 0o600)
        for path in self._logs.glob("*.log"):
            if path.stem.isdigit() and int(path.stem) < attempt - 1:
                path.unlink(missing_ok=True)
                times_path(path).unlink(missing_ok=True)


def resolve_image(image: str, images_dir: Path) -> Path:
    """The file an image's name means."""
    if "/" in image:
        path = Path(image)
        if not path.is_absolute():
            raise RuntimeCallError(f"image {image!r} is neither a name nor an absolute path")
        found = path.resolve()
    else:
        found = (images_dir / image).resolve()
        if image.startswith(".") or not found.is_relative_to(images_dir.resolve()):
            raise RuntimeCallError(f"image {image!r} leads out of the images directory")
    if not found.is_file():
        raise ImageMissingError(
            f"image {image} is not on this machine (looked for {found});"
            " `livesize guest build` makes a guest to try"
        )
    return found


def _checked_format(image: Path) -> str:
    told = _image_facts(image)
    kind = str(told.get("format"))
    if kind not in _FORMATS:
        raise RuntimeCallError(f"disk image {image.name} is {kind}; {' and '.join(_FORMATS)} work")
    specific = told.get("format-specific", {}).get("data", {})
    if "backing-filename" in told or "data-file" in specific:
        raise RuntimeCallError(
            f"disk image {image.name} refers to another file; make it whole with"
            " qemu-img convert -O qcow2"
        )
    return kind


def _virtual_size(image: Path) -> int:
    return int(_image_facts(image)["virtual-size"])


def _image_facts(image: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(_qemu_img(["info", "--output=json", str(image)]))
    return told


def _qemu_img(arguments: list[str]) -> str:
    try:
        done = subprocess.run(
            ["qemu-img", *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except FileNotFoundError as failure:
        raise RuntimeCallError("a VM with a disk needs qemu-img (package qemu-utils)") from failure
    except subprocess.TimeoutExpired as failure:
        raise RuntimeCallError(f"qemu-img {arguments[0]} took longer than 60 s") from failure
    except subprocess.CalledProcessError as failure:
        raise RuntimeCallError(f"qemu-img {arguments[0]}: {failure.stderr.strip()}") from failure
    return done.stdout
