"""Tells a service manager how we are, in the words of sd_notify: ready, stopping, still alive.

Without NOTIFY_SOCKET in the environment every call does nothing. With WATCHDOG_USEC the manager
ends a process that has not spoken for so long; ``keep_alive`` speaks from the event loop, so that a
loop that hangs is noticed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from livesize.machinery.clock import Clock

_SPOKEN_PER_TIMEOUT = 3


class Notifier:
    def __init__(self, address: str, watchdog_seconds: float | None) -> None:
        self._address = address
        self._watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Notifier:
        values = os.environ if environment is None else environment
        address = values.get("NOTIFY_SOCKET", "")
        if address.startswith("@"):
            address = "\0" + address[1:]  # a name in Linux' abstract space
        microseconds = values.get("WATCHDOG_USEC", "")
        meant = values.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = meant and microseconds.isdigit() and int(microseconds) > 0
        return cls(address, int(microseconds) / 1e6 if watched else None)

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    async def keep_alive(self, clock: Clock) -> None:
        """Until cancelled; returns at once where nobody watches."""
        if self._watchdog_seconds is None or not self._address:
            return
        while True:
            self._send("WATCHDOG=1")
            await clock.sleep(self._watchdog_seconds / _SPOKEN_PER_TIMEOUT)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as made:
                made.setblocking(False)
                made.sendto(text.encode(), self._address)
        except OSError:
            return  # a manager that does not listen must not keep us from our work
