"""The connection to our libvirtd: made when first needed, made again when it breaks.

libvirt is imported here and nowhere else, and only when the first VM comes. Its events come from
one thread of the process, which runs libvirt's own event loop: that loop is one for the whole
process and is called from whatever thread makes a call, so that it can be neither the agent's
loop (uvloop may be used by its own thread only) nor a new one for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.daemon import LibvirtDaemon

log = get_logger("libvirt")

_ANSWER_SECONDS = 20.0
_POLL_SECONDS = 0.01
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
_KEEPALIVE = (5, 6)  # seconds between probes, and how many may go unanswered


class DomainEvent(msgspec.Struct, frozen=True):
    """Something happened to a domain by itself. ``kind`` is libvirt's name for it."""

    domain_uuid: str
    kind: str
    number: int = 0
    detail: int = 0
    alias: str = ""  # of the device that it is about


def load_libvirt() -> Any:
    """The bindings; a sentence where they are missing."""
    try:
        import libvirt
    except ImportError as failure:
        raise RuntimeCallError(
            "virtual machines need the Python bindings of libvirt:"
            f" pip install 'livesize[vm]' (needs libvirt-dev and a C compiler) — {failure}"
        ) from failure
    return libvirt


class LibvirtConnection:
    """``on_event`` and ``on_connected`` are called on the loop; all else from other threads."""

    def __init__(
        self,
        daemon: LibvirtDaemon,
        on_event: Callable[[DomainEvent], None],
        on_connected: Callable[[], None],
    ) -> None:
        self._daemon = daemon
        self._on_event = on_event
        self._on_connected = on_connected
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._connection: Any = None
        self._closing = threading.Event()

    def connection(self) -> Any:
        """Open, or opened now; starts libvirtd where it does not run."""
        with self._lock:
            if self._connection is not None and self._is_alive():
                return self._connection
            if self._closing.is_set():
                raise RuntimeCallError("the connection to libvirtd was closed")
            self._drop()
            self._connection = self._open()
            self._register(self._connection)
        self._tell(self._on_connected)
        return self._connection

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            self._drop()

    def _is_alive(self) -> bool:
        return bool(self._connection.isAlive() == 1)

    def _open(self) -> Any:
        """Through a descriptor of the folder: a socket's path may have 107 characters only."""
        libvirt = load_libvirt()
        _run_events(libvirt)
        self._daemon.start()
        folder = os.open(self._daemon.root / "run", os.O_PATH | os.O_DIRECTORY)
        try:
            uri = f"qemu:///system?socket=/proc/self/fd/{folder}/{self._daemon.socket.name}"
            for _ in range(int(_ANSWER_SECONDS / _POLL_SECONDS)):
                with contextlib.suppress(libvirt.libvirtError):
                    return libvirt.open(uri)
                if self._daemon.ended_early() or self._closing.wait(_POLL_SECONDS):
                    break
        finally:
            os.close(folder)
        raise RuntimeCallError(f"libvirtd does not answer: {self._daemon.why_not()}")

    def _register(self, connection: Any) -> None:
        libvirt = load_libvirt()
        with contextlib.suppress(libvirt.libvirtError):
            connection.setKeepAlive(*_KEEPALIVE)
        connection.registerCloseCallback(lambda *_: self._lost(connection), None)
        for kind in _EVENTS:
            number = getattr(libvirt, f"VIR_DOMAIN_EVENT_ID_{kind}")
            connection.domainEventRegisterAny(None, number, functools.partial(self._heard, kind), 0)

    def _heard(self, kind: str, _connection: Any, domain: Any, *arguments: Any) -> None:
        """Called by libvirt's thread."""
        numbers = [value for value in arguments[:-1] if isinstance(value, int)]
        alias = next((value for value in arguments if isinstance(value, str)), "")
        number, detail, *_ = (*numbers, 0, 0)
        event = DomainEvent(domain.UUIDString(), kind, number, detail, alias)
        self._tell(functools.partial(self._on_event, event))

    def _lost(self, connection: Any) -> None:
        """Called by libvirt's thread when libvirtd is gone: reconnect, from a thread."""
        if self._closing.is_set() or connection is not self._connection:
            return
        log.warning("libvirtd is gone; starting it again")
        threading.Thread(target=self._reconnect, name="livesize-libvirtd", daemon=True).start()

    def _reconnect(self) -> None:
        for delay_seconds in _RETRY_SECONDS:
            if self._closing.wait(delay_seconds):
                return
            try:
                self.connection()
            except RuntimeCallError as failure:
                log.warning("libvirtd cannot be started again", why=str(failure))
            else:
                return

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            libvirt = load_libvirt()
            with contextlib.suppress(libvirt.libvirtError):
                connection.unregisterCloseCallback()
            with contextlib.suppress(libvirt.libvirtError):
                connection.close()

    def _tell(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
            self._loop.call_soon_threadsafe(call)


_EVENTS = (
    *("LIFECYCLE", "REBOOT", "AGENT_LIFECYCLE", "MEMORY_DEVICE_SIZE_CHANGE"),
    *("BALLOON_CHANGE", "DEVICE_REMOVED", "DEVICE_REMOVAL_FAILED"),
)


@functools.cache
def _run_events(libvirt: Any) -> None:
    """One thread for the process, from the first connection on."""
    libvirt.registerErrorHandler(lambda *_: None, None)  # it would print what we raise
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            with contextlib.suppress(libvirt.libvirtError):
                libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run, name="livesize-libvirt-events", daemon=True).start()
