"""Asks a container once: runs a command in it, gets a page from it, or opens one of its ports."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

from livesize.agent.probes.plan import (
    UNKNOWN_PORT,
    GetPage,
    OpenPort,
    ProbeAction,
    RunCommand,
    Sleep,
)
from livesize.machinery.clock import Clock
from livesize.runtime.interface import CommandTimeoutError, Runtime, RuntimeCallError

_STATUS_LINE_BYTES = 4096
_GOOD = range(200, 400)
_MOST_CHARACTERS = 1024
# Names that are none, and ports that are none, are the pod's own words.
_UNREACHABLE = (OSError, ValueError, OverflowError)


@dataclass(frozen=True)
class Prober:
    """``address``: where the pod is reached."""

    runtime: Runtime
    clock: Clock
    pod_uid: str
    container: str
    address: str

    async def ask(self, handler: ProbeAction, timeout_seconds: float) -> str:
        """Empty where all is well; else what was wrong, in a sentence."""
        try:
            match handler:
                case RunCommand(command=command):
                    return await self._run(command, timeout_seconds)
                case GetPage():
                    async with asyncio.timeout(timeout_seconds):
                        return await self._get(handler)
                case OpenPort(port=port, host=host):
                    async with asyncio.timeout(timeout_seconds):
                        return await self._open(host, port)
                case Sleep(seconds=seconds):
                    await self.clock.sleep(min(seconds, timeout_seconds))
                    return ""
        except TimeoutError:
            return f"no answer within {timeout_seconds:g} s"

    async def _run(self, command: tuple[str, ...], timeout_seconds: float) -> str:
        try:
            result = await self.runtime.run_command(
                self.pod_uid, self.container, command, env=(), timeout_seconds=timeout_seconds
            )
        except CommandTimeoutError:
            return f"command {' '.join(command)} timed out after {timeout_seconds:g} s"
        except RuntimeCallError as failure:
            return str(failure)
        if result.exit_code == 0:
            return ""
        return result.output.strip()[-_MOST_CHARACTERS:] or f"exit status {result.exit_code}"

    async def _open(self, host: str, port: int) -> str:
        if port == UNKNOWN_PORT:
            return "the container has no port of that name"
        try:
            _, writer = await asyncio.open_connection(host or self.address, port)
        except _UNREACHABLE as failure:
            why = getattr(failure, "strerror", None) or failure
            return f"cannot connect to {host or self.address}:{port}: {why}"
        writer.close()
        return ""

    async def _get(self, page: GetPage) -> str:
        if page.port == UNKNOWN_PORT:
            return "the container has no port of that name"
        host = page.host or self.address
        try:
            status = await _status_of(page, host)
        except _UNREACHABLE as failure:
            return f"cannot get {host}:{page.port}{page.path}: {failure}"
        return "" if status in _GOOD else f"HTTP probe failed with statuscode: {status}"


async def _status_of(page: GetPage, host: str) -> int:
    """One request, of which only the first line of the answer is read."""
    trusting = _trusting() if page.is_https else None
    reader, writer = await asyncio.open_connection(
        host, page.port, ssl=trusting, limit=_STATUS_LINE_BYTES
    )
    try:
        headers = {"Host": f"{host}:{page.port}", "User-Agent": "livesize-probe", "Accept": "*/*"}
        headers |= {**dict(page.headers), "Connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        path = page.path if page.path.startswith("/") else f"/{page.path}"
        writer.write(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        await writer.drain()
        answer = (await reader.readline()).decode(errors="replace")
    finally:
        # Not waited for: over TLS the other side may take its time to say goodbye.
        writer.close()
    parts = answer.split()
    if len(parts) < 2 or not parts[0].startswith("HTTP/") or not parts[1].isdigit():
        raise ValueError("the answer is no HTTP")
    return int(parts[1])


def _trusting() -> ssl.SSLContext:
    """As in Kubernetes, a probe asks whether somebody answers, not who it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
