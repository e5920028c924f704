"""Starts what is measured, each in a process of its own, and stops it again.

``api_server`` is `livesize apiserver`, with its store and nothing else; ``control_plane`` is the
one of `livesize up` without an agent: API server, store, scheduler, controllers in one process.
``whole_system`` is `livesize up` itself. ``raw_server`` is the yardstick (bench.raw_asgi) with the
same certificate.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.pods import NODES_PATH
from bench.wire import Address, RefusedError, Wire, request_bytes
from livesize.api.roles import Role
from livesize.apiserver.auth.records import TokenEntry
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.tls import TlsFiles, ensure_tls
from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.control_plane import ControlPlaneSettings
from livesize.main.wiring.folders import prepare
from livesize.runtime.ownership import read_identity

BENCH_NODE = "bench"
STOP_SECONDS = 30.0


class BenchServer(msgspec.Struct, frozen=True):
    """A control plane, and who may enter."""

    address: Address
    tls: TlsFiles
    admin_token: str
    node_token: str


class System(msgspec.Struct, frozen=True):
    """A running `livesize up`."""

    directory: DataDirectory
    node: str
    pid: int

    @property
    def root_group(self) -> str:
        """Below which its pods have their groups."""
        identity = read_identity(self.directory.node)
        assert identity is not None, "the node has never run"
        return identity.container_root

    def control_plane_pid(self) -> int:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in map(int, children):
            if b"control_plane" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        raise AssertionError("the control plane does not run")


@asynccontextmanager
async def control_plane(folder: Path) -> AsyncIterator[BenchServer]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        server, tokens = _prepare_server(folder, listener.getsockname()[1])
        write_tokens(DataDirectory(folder).tokens, tokens)
        settings = ControlPlaneSettings(str(folder), listener.fileno(), None, None, "warning")
        text = msgspec.json.encode(settings).decode()
        async with _process(
            "-m", "livesize.main.wiring.control_plane", text, pass_fds=(listener.fileno(),)
        ):
            await _ready(server.address)
            yield server


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[BenchServer]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    server, tokens = _prepare_server(folder, port)
    words = ["--data-dir", str(folder), "--listen", f"127.0.0.1:{port}", "--log-level", "warning"]
    async with _process(
        "-m", "livesize.main", "apiserver", *words, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise AssertionError("the API server did not start")
        # It has made tokens of its own, and takes note when there are others.
        write_tokens(DataDirectory(folder).tokens, tokens)
        await _ready(server.address, server.admin_token, NODES_PATH)
        yield server


def _prepare_server(folder: Path, port: int) -> tuple[BenchServer, list[TokenEntry]]:
    """What a server needs to find in its folder, made before it starts; and who may enter."""
    directory = DataDirectory(folder)
    prepare(directory, None)
    tls = ensure_tls(directory.tls, ["127.0.0.1"], now=time.time())
    admin, admin_entry = issue_token("admin", Role.ADMIN)
    node, node_entry = issue_token(f"system:node:{BENCH_NODE}", Role.NODE, node=BENCH_NODE)
    return BenchServer(Address(port, tls.ca_cert), tls, admin, node), [admin_entry, node_entry]


@asynccontextmanager
async def raw_server(folder: Path, answer: bytes, tls: TlsFiles) -> AsyncIterator[Address]:
    """Answers ``answer`` to everything."""
    bytes_file = folder / "answer.json"
    bytes_file.write_bytes(answer)
    files = ["--bytes", str(bytes_file), "--db", str(folder / "raw.db")]
    files += ["--cert", str(tls.cert), "--key", str(tls.key)]
    async with _process("-m", "bench.raw_asgi", *files, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = Address(int(process.stdout.readline()), tls.ca_cert)
        await _ready(address)
        yield address


@asynccontextmanager
async def whole_system(folder: Path, node: str, *options: str) -> AsyncIterator[System]:
    folder.mkdir()
    arguments = ["--data-dir", str(folder), "--listen", "127.0.0.1:0", "--node-name", node]
    arguments += ["--log-level", "warning", *options]
    log_path = folder / "up.log"
    with log_path.open("wb") as log:
        async with _process(
            "-m", "livesize.main", "up", *arguments, stdout=subprocess.PIPE, stderr=log
        ) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise AssertionError(f"it did not start:\n{log_path.read_text()}")
            yield System(DataDirectory(folder), node, process.pid)


@asynccontextmanager
async def _process(*arguments: str, **how: object) -> AsyncIterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *arguments], **how)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        # In a thread: the loop has connections to let go of, and the server waits for that.
        code = await asyncio.to_thread(_wait, process)
        if process.stdout is not None:
            process.stdout.close()
    assert code in (0, -signal.SIGTERM), f"{arguments[:3]} ended with {code}"


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


async def _ready(address: Address, token: str = "", path: str = "/readyz") -> None:
    wire = await Wire.open(address)
    ready = request_bytes("GET", path, token)
    try:
        for _ in range(200):
            try:
                await wire.ask(ready)
            except RefusedError:
                await asyncio.sleep(0.02)
            else:
                return
    finally:
        wire.close()
    raise AssertionError("the server does not get ready")
