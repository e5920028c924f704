"""Bytes that others made: streams to the agent, images from somewhere. (A log that
floods: tests/regressions/test_logs_take_no_more_than_they_may.py.)"""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
import zlib
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from livesize.api.spdy import Framer
from livesize.main.entry import cli
from unit.agent.test_endpoint import Node, serve

pytestmark = pytest.mark.security

PROTOCOL = "SPDY/3.1+portforward.k8s.io"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async for made in serve(tmp_path / "s", {os.geteuid()}):
        yield made


def bomb() -> bytes:
    """A frame whose headers unpack to a gigabyte."""
    packed = zlib.compressobj(9)
    pieces = [packed.compress(bytes(1 << 20)) for _ in range(1024)]
    body = struct.pack(">IIxx", 1, 0) + b"".join(pieces) + packed.flush()
    return struct.pack(">II", 0x80030001, len(body)) + body


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(bomb(), id="headers that unpack to a gigabyte"),
        pytest.param(Framer().open(1, {"a": "b" * 1_000_000}), id="long headers"),
        pytest.param(struct.pack(">II", 1, 0xFFFFFF), id="a frame of 16 MiB"),
        pytest.param(struct.pack(">II", 0x80020001, 0), id="another version"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" * 100, id="another language"),
    ],
)
async def test_a_stream_that_is_no_stream_is_hung_up_on(node: Node, wire: bytes) -> None:
    async with node.switched("/portforward/u-1", PROTOCOL) as stream:
        await stream.send_bytes(wire)
        assert [message async for message in stream] == []
    assert (await node.get("/logs/u-1/app"))[0] == 200


def image(folder: Path, *members: tuple[str, bytes | None, dict[str, Any]]) -> Path:
    """An OCI layout of one layer with these members."""
    layer = _tar(members)
    config = json.dumps({"rootfs": {"type": "layers", "diff_ids": [_digest(layer)]}}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "config": _descriptor(config, "application/vnd.oci.image.config.v1+json"),
            "layers": [_descriptor(layer, "application/vnd.oci.image.layer.v1.tar")],
        }
    ).encode()
    media = "application/vnd.oci.image.manifest.v1+json"
    index = {"schemaVersion": 2, "manifests": [_descriptor(manifest, media)]}
    blobs = [(f"blobs/sha256/{sha256(one).hexdigest()}", one) for one in (layer, config, manifest)]
    files = [("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), *blobs]
    files.append(("index.json", json.dumps(index).encode()))
    archive = folder / "image.tar"
    archive.write_bytes(_tar([(name, content, {}) for name, content in files]))
    return archive


def _descriptor(content: bytes, media: str) -> dict[str, Any]:
    return {"mediaType": media, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def _tar(members: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content, more in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content or b"")
            for field, value in more.items():
                setattr(entry, field, value)
            archive.addfile(entry, io.BytesIO(content or b""))
    return buffer.getvalue()


LINK = {"type": tarfile.SYMTYPE}
HARD = {"type": tarfile.LNKTYPE}


@pytest.mark.parametrize(
    "members",
    [
        pytest.param([("../evil", b"x", {})], id="upwards"),
        pytest.param([("a/../../../../evil", b"x", {})], id="upwards inside"),
        pytest.param([("/evil", b"x", {})], id="absolute"),
        pytest.param(
            [("l", None, {**LINK, "linkname": "/"}), ("l/evil", b"x", {})], id="through a link"
        ),
        pytest.param(
            [("l", None, {**LINK, "linkname": "../../../.."}), ("l/evil", b"x", {})],
            id="through a link upwards",
        ),
        pytest.param([("x", None, {**HARD, "linkname": "../victim"})], id="hard link"),
        pytest.param([("x", None, {**HARD, "linkname": "/etc/shadow"})], id="hard link, absolute"),
        pytest.param(
            [("sda", None, {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0})], id="device"
        ),
        pytest.param([("a/.wh...", b"", {})], id="whiteout of the parent"),
    ],
)
def test_a_layer_writes_nothing_outside_of_its_image(
    tmp_path: Path, members: list[tuple[str, bytes | None, dict[str, Any]]]
) -> None:
    (tmp_path / "victim").write_text("untouched")
    archive = image(tmp_path, *members)
    words = ["image", "import", str(archive), "--name", "localhost/evil:1"]
    done = CliRunner().invoke(cli, [*words, "--data-dir", str(tmp_path / "data")])
    assert done.exit_code in (0, 1)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert sorted(one.name for one in tmp_path.iterdir()) <= ["data", "image.tar", "victim"]
    assert (tmp_path / "victim").stat().st_nlink == 1
    assert not Path("/evil").exists()
    for found in (tmp_path / "data").rglob("*"):
        assert not found.is_block_device()
        assert found.is_symlink() or found.stat().st_nlink == 1 or found.is_dir()
