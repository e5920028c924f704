"""The images on this machine: imported from OCI layout tar files, kept unpacked, found by name.

In the folder: ``rootfs/<id>`` is an unpacked image, ``<id>.json`` what it runs, and ``refs.json``
says which name means which image. Each is made under another name and renamed, so a killed import
leaves nothing that counts. Containers use the unpacked tree read-only, below an overlay.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from livesize.runtime import oci
from livesize.runtime.interface import ImageMissingError, RuntimeCallError
from livesize.runtime.unpack import unpack_layer

_LARGEST_DOCUMENT = 4 * 1024 * 1024
_DEFAULT_REGISTRY = "docker.io"


class Image(msgspec.Struct, frozen=True):
    id: str  # digest of the image's configuration, as sha256:…
    rootfs: str
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    env: tuple[str, ...]
    workdir: str
    user: str = ""


class ImageStore:
    def __init__(self, directory: Path, busybox: str = "busybox") -> None:
        self._directory = directory
        self._busybox = busybox

    def names(self) -> tuple[str, ...]:
        """Every name that resolves, the built-in one included if it can be made."""
        names = set(self._refs())
        try:
            oci.find_static_busybox(self._busybox)
        except ImageMissingError:
            pass
        else:
            names.add(oci.BUILT_IN_IMAGE)
        return tuple(sorted(names))

    def resolve(self, ref: str) -> Image:
        """The image of that name, or one whose name means the same."""
        refs = self._refs()
        digest = refs.get(ref) or {normalise(name): refs[name] for name in refs}.get(normalise(ref))
        if digest is None and ref == oci.BUILT_IN_IMAGE:
            self._import_built_in()
            digest = self._refs()[ref]
        if digest is None:
            present = ", ".join(self.names()) or "none"
            raise ImageMissingError(
                f"image {ref} is not on this machine (present: {present});"
                " import it from an OCI layout tar file, images are not pulled"
            )
        return self._load(digest)

    def import_tar(self, path: Path, ref: str = "") -> str:
        """Import an OCI layout tar; returns the name it is known by: ``ref``, or what it says."""
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            with self._lock(), tarfile.open(path) as archive:
                layout = _Layout(archive)
                manifest, annotated = layout.choose_manifest()
                name = ref or annotated
                if not name:
                    raise RuntimeCallError(f"{path}: the image says no name; give one")
                digest = self._keep(layout, manifest)
                self._save_refs({**self._refs(), name: digest})
        except (tarfile.TarError, OSError, KeyError, TypeError, ValueError) as failure:
            why = str(failure).partition("\n")[0]
            raise RuntimeCallError(f"{path} is not a usable OCI image: {why}") from failure
        return name

    def _import_built_in(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix="new-") as scratch:
            path = Path(scratch, "busybox.tar")
            oci.write_busybox_image(path, busybox=self._busybox)
            self.import_tar(path)

    def _keep(self, layout: _Layout, manifest: dict[str, Any]) -> str:
        """Unpack the image unless it is here already; returns the hex part of its id."""
        descriptor = manifest["config"]
        digest = _hex(descriptor["digest"])
        record = self._directory / f"{digest}.json"
        if record.exists():
            return digest
        config = json.loads(layout.read(descriptor["digest"]))
        rootfs = self._directory / "rootfs" / digest
        rootfs.parent.mkdir(exist_ok=True)
        shutil.rmtree(rootfs, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix="new-") as scratch:
            fresh = Path(scratch, "rootfs")
            fresh.mkdir()
            for layer in manifest["layers"]:
                layout.unpack(layer, fresh)
            fresh.chmod(0o755)
            fresh.rename(rootfs)
        _write_atomically(record, msgspec.json.encode(_image(digest, rootfs, config)))
        return digest

    def _load(self, digest: str) -> Image:
        image = msgspec.json.decode((self._directory / f"{digest}.json").read_bytes(), type=Image)
        rootfs = str((self._directory / "rootfs" / digest).absolute())
        return msgspec.structs.replace(image, rootfs=rootfs)

    def _refs(self) -> dict[str, str]:
        try:
            content = (self._directory / "refs.json").read_bytes()
        except FileNotFoundError:
            return {}
        return msgspec.json.decode(content, type=dict[str, str])

    def _save_refs(self, refs: dict[str, str]) -> None:
        _write_atomically(self._directory / "refs.json", msgspec.json.encode(refs))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """The command line and the agent may import at the same time."""
        with (self._directory / "lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


class _Layout:
    """An opened image layout. Nothing is used before its digest has been checked."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._members = {
            os.path.normpath(member.name): member for member in archive if member.isreg()
        }

    def choose_manifest(self) -> tuple[dict[str, Any], str]:
        """The manifest for this machine, and the name the layout gives it."""
        if "index.json" not in self._members:
            raise ValueError("it has no index.json")
        index = json.loads(self._content("index.json"))
        descriptor = _for_this_machine(index["manifests"])
        annotations = descriptor.get("annotations") or {}
        name = annotations.get(oci.NAME_ANNOTATION) or annotations.get(oci.REF_ANNOTATION) or ""
        document = json.loads(self.read(descriptor["digest"]))
        while "manifests" in document:
            descriptor = _for_this_machine(document["manifests"])
            document = json.loads(self.read(descriptor["digest"]))
        return document, str(name)

    def read(self, digest: str) -> bytes:
        content = self._content(f"blobs/sha256/{_hex(digest)}")
        _check_digest(digest, hashlib.sha256(content).hexdigest())
        return content

    def unpack(self, descriptor: dict[str, Any], root: Path) -> None:
        media_type = str(descriptor.get("mediaType", ""))
        if media_type.endswith("zstd"):
            raise ValueError(f"layers of type {media_type} are not supported; use gzip or none")
        name = f"blobs/sha256/{_hex(descriptor['digest'])}"
        with self._open(name) as content:
            _check_digest(descriptor["digest"], hashlib.file_digest(content, "sha256").hexdigest())
            content.seek(0)
            unpack_layer(content, root)

    def _content(self, name: str) -> bytes:
        with self._open(name) as content:
            document = content.read(_LARGEST_DOCUMENT + 1)
        if len(document) > _LARGEST_DOCUMENT:
            raise ValueError(f"{name} is larger than {_LARGEST_DOCUMENT} bytes")
        return document

    def _open(self, name: str) -> io.BufferedReader:
        if name not in self._members:
            raise ValueError(f"it has no {name}")
        content = self._archive.extractfile(self._members[name])
        assert isinstance(content, io.BufferedReader)
        return content


def normalise(ref: str) -> str:
    """The full form of a name, as container tools write it: registry, path and tag."""
    first, slash, _ = ref.partition("/")
    if not slash:
        ref = f"{_DEFAULT_REGISTRY}/library/{ref}"
    elif "." not in first and ":" not in first and first != "localhost":
        ref = f"{_DEFAULT_REGISTRY}/{ref}"
    if "@" not in ref and ":" not in ref.rpartition("/")[2]:
        ref = f"{ref}:latest"
    return ref


def _for_this_machine(descriptors: list[dict[str, Any]]) -> dict[str, Any]:
    wanted = oci.image_architecture()
    for descriptor in descriptors:
        platform = descriptor.get("platform")
        if platform is None or (
            platform.get("os") == "linux" and platform.get("architecture") == wanted
        ):
            return descriptor
    raise ValueError(f"it has no image for linux/{wanted}")


def _image(digest: str, rootfs: Path, config: dict[str, Any]) -> Image:
    runs = config.get("config") or {}
    return Image(
        id=f"sha256:{digest}",
        rootfs=str(rootfs),
        entrypoint=tuple(runs.get("Entrypoint") or ()),
        cmd=tuple(runs.get("Cmd") or ()),
        env=tuple(runs.get("Env") or ()),
        workdir=runs.get("WorkingDir") or "/",
        user=runs.get("User") or "",
    )


def _hex(digest: str) -> str:
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise ValueError(f"{digest!r} is not a sha256 digest")
    return value


def _check_digest(stated: str, found: str) -> None:
    if stated != f"sha256:{found}":
        raise ValueError(f"a blob should be {stated} and is sha256:{found}")


def _write_atomically(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    fresh.rename(path)
