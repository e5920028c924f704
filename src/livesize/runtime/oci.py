"""Writes OCI image layouts as tar files, with the standard library alone.

The same files give the same bytes: names are sorted, times and owners fixed. The annotation
io.containerd.image.name carries the full reference, so that containerd imports such a file too.
The built-in image is made of the machine's own static busybox, so that a first pod needs neither
a registry nor a network.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from livesize.api.architecture import architecture_of
from livesize.runtime.interface import ImageMissingError

BUILT_IN_IMAGE = "localhost/livesize/busybox:1"
NAME_ANNOTATION = "io.containerd.image.name"
REF_ANNOTATION = "org.opencontainers.image.ref.name"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"

_FIXED_TIME = 0
_ELF_INTERPRETER = 3  # PT_INTERP: the program wants a dynamic loader


class LayerFile(msgspec.Struct, frozen=True):
    content: bytes
    mode: int = 0o644


class LayerLink(msgspec.Struct, frozen=True):
    target: str


class LayerFolder(msgspec.Struct, frozen=True):
    mode: int = 0o755


class ImageSettings(msgspec.Struct, frozen=True):
    """What runs when a pod names no command, and with what."""

    command: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    env: tuple[str, ...] = ("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",)
    working_dir: str = "/"
    user: str = ""


Layer = Mapping[str, LayerFile | LayerLink | LayerFolder]


def image_architecture() -> str:
    """This machine's architecture as OCI names it."""
    return architecture_of(platform.machine())


def write_image(path: Path, ref: str, layers: Sequence[Layer], settings: ImageSettings) -> str:
    """Write an image layout to ``path``; returns the digest of its manifest."""
    blobs: dict[str, bytes] = {}
    layer_blobs = [_tar(layer) for layer in layers]
    config = _blob(blobs, CONFIG_TYPE, _json(_image_config(layer_blobs, settings)))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": config,
        "layers": [_blob(blobs, LAYER_TYPE, content) for content in layer_blobs],
    }
    descriptor = _blob(blobs, MANIFEST_TYPE, _json(manifest))
    tag = ref.rpartition(":")[2]
    annotations = {NAME_ANNOTATION: ref, REF_ANNOTATION: tag}
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [{**descriptor, "annotations": annotations}],
    }
    files = {f"blobs/sha256/{digest}": content for digest, content in blobs.items()}
    files["index.json"] = _json(index)
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    path.write_bytes(_tar({name: LayerFile(content) for name, content in files.items()}))
    return str(descriptor["digest"])


def write_busybox_image(path: Path, ref: str = BUILT_IN_IMAGE, busybox: str = "busybox") -> str:
    """Write the built-in image from the machine's static busybox; returns its digest."""
    program = find_static_busybox(busybox)
    listed = subprocess.run([program, "--list"], capture_output=True, check=True, text=True)
    settings = ImageSettings(command=("/bin/sleep", "2147483647"))
    return write_image(path, ref, [_busybox_layer(program, listed.stdout.split())], settings)


def find_static_busybox(busybox: str = "busybox") -> Path:
    """Where busybox is, or a sentence that says how to get a usable one."""
    found = shutil.which(busybox)
    if found is None:
        raise ImageMissingError(
            f"image {BUILT_IN_IMAGE} is made of the machine's busybox, and there is none on the"
            " PATH; install the package busybox-static"
        )
    program = Path(found).resolve()
    if not _is_static(program):
        raise ImageMissingError(
            f"image {BUILT_IN_IMAGE} needs a statically linked busybox and {program} is not;"
            " install the package busybox-static"
        )
    return program


def _busybox_layer(program: Path, applets: Sequence[str]) -> Layer:
    layer: dict[str, LayerFile | LayerLink | LayerFolder] = {
        f"bin/{name}": LayerLink("busybox") for name in applets if name != "busybox"
    }
    for name in (
        "bin",
        "dev",
        "etc",
        "home",
        "proc",
        "root",
        "run",
        "sys",
        "usr",
        "usr/bin",
        "var",
    ):
        layer[name] = LayerFolder()
    layer["tmp"] = LayerFolder(0o1777)
    layer["usr/bin/env"] = LayerLink("/bin/busybox")
    layer["bin/busybox"] = LayerFile(program.read_bytes(), 0o755)
    layer["etc/passwd"] = LayerFile(
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    )
    layer["etc/group"] = LayerFile(b"root:x:0:\nnogroup:x:65534:\n")
    return layer


def _is_static(program: Path) -> bool:
    """True for an ELF program without an interpreter (elf(5))."""
    header = program.read_bytes()[:4096]
    if header[:4] != b"\x7fELF" or header[4] != 2:
        return False
    (offset,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    kinds = [
        struct.unpack_from("<I", header, offset + number * size)[0]
        for number in range(count)
        if offset + number * size + 4 <= len(header)
    ]
    return _ELF_INTERPRETER not in kinds


def _image_config(layer_blobs: Sequence[bytes], settings: ImageSettings) -> dict[str, Any]:
    config: dict[str, Any] = {
        "Env": list(settings.env),
        "Cmd": list(settings.command),
        "WorkingDir": settings.working_dir,
    }
    if settings.entrypoint:
        config["Entrypoint"] = list(settings.entrypoint)
    if settings.user:
        config["User"] = settings.user
    return {
        "architecture": image_architecture(),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [_digest(content) for content in layer_blobs]},
    }


def _tar(entries: Layer) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(entries):
            _add(archive, name, entries[name])
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, entry: LayerFile | LayerLink | LayerFolder) -> None:
    member = tarfile.TarInfo(name)
    member.mtime = _FIXED_TIME
    match entry:
        case LayerFile(content=content, mode=mode):
            member.mode = mode
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        case LayerLink(target=target):
            member.type = tarfile.SYMTYPE
            member.mode = 0o777
            member.linkname = target
            archive.addfile(member)
        case LayerFolder(mode=mode):
            member.type = tarfile.DIRTYPE
            member.mode = mode
            archive.addfile(member)


def _blob(blobs: dict[str, bytes], media_type: str, content: bytes) -> dict[str, Any]:
    digest = _digest(content)
    blobs[digest.removeprefix("sha256:")] = content
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
