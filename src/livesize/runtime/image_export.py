"""Writes an image of our store as an OCI layout tar, for a runtime that keeps images itself.

The store keeps an image unpacked, so it leaves as one layer, and with a new digest of its own;
the label IMAGE_LABEL says which image of the store it is. Nothing is held in memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

from livesize.runtime import oci
from livesize.runtime.images import Image

IMAGE_LABEL = "livesize.dev/image"
_CHUNK_BYTES = 1 << 20


def export_image(image: Image, ref: str, target: Path) -> None:
    """Write ``image`` to ``target``, to be known by the full name ``ref``."""
    with (
        tempfile.TemporaryFile(dir=target.parent) as layer,
        tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive,
    ):
        _write_layer(layer, Path(image.rootfs))
        layer_blob = _describe(oci.LAYER_TYPE, _digest(layer), layer.tell())
        config = _document(_image_config(image, layer_blob["digest"]))
        config_blob = _describe_document(oci.CONFIG_TYPE, config)
        manifest = _document(
            {
                "schemaVersion": 2,
                "mediaType": oci.MANIFEST_TYPE,
                "config": config_blob,
                "layers": [layer_blob],
            }
        )
        manifest_blob = _describe_document(oci.MANIFEST_TYPE, manifest)
        names = {oci.NAME_ANNOTATION: ref, oci.REF_ANNOTATION: ref.rpartition(":")[2]}
        index = {
            "schemaVersion": 2,
            "mediaType": oci.INDEX_TYPE,
            "manifests": [{**manifest_blob, "annotations": names}],
        }
        layer.seek(0)
        _add(archive, _blob_name(layer_blob), layer, layer_blob["size"])
        for name, content in (
            (_blob_name(config_blob), config),
            (_blob_name(manifest_blob), manifest),
            ("index.json", _document(index)),
            ("oci-layout", _document({"imageLayoutVersion": "1.0.0"})),
        ):
            _add(archive, name, io.BytesIO(content), len(content))


def _write_layer(layer: IO[bytes], root: Path) -> None:
    """Everything below ``root`` with owners, modes and links; hard links stay links."""
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, arcname=path.name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owners are numbers: what this machine calls them means nothing in the image."""
    member.uname = member.gname = ""
    return member


def _image_config(image: Image, layer_digest: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "Env": list(image.env),
        "Cmd": list(image.cmd),
        "WorkingDir": image.workdir,
        "Labels": {IMAGE_LABEL: image.id},
    }
    if image.entrypoint:
        config["Entrypoint"] = list(image.entrypoint)
    if image.user:
        config["User"] = image.user
    return {
        "architecture": oci.image_architecture(),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }


def _digest(content: IO[bytes]) -> str:
    """Of all of it; leaves the position at the end."""
    content.seek(0)
    found = hashlib.sha256()
    while chunk := content.read(_CHUNK_BYTES):
        found.update(chunk)
    return f"sha256:{found.hexdigest()}"


def _describe(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _describe_document(media_type: str, content: bytes) -> dict[str, Any]:
    return _describe(media_type, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def _blob_name(blob: dict[str, Any]) -> str:
    return f"blobs/sha256/{blob['digest'].removeprefix('sha256:')}"


def _document(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    archive.addfile(member, content)
