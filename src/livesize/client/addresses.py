"""Which of several API servers is asked: one, until it cannot be reached; then the next."""

from __future__ import annotations

from collections.abc import Sequence

from livesize.machinery.telemetry import get_logger

log = get_logger("client.addresses")


class Addresses:
    """They are asked in turn, not at random: a client stays with the one that answers."""

    def __init__(self, servers: Sequence[str]) -> None:
        assert servers, "somebody must be asked"
        self._servers = tuple(servers)
        self._index = 0

    @property
    def current(self) -> str:
        return self._servers[self._index]

    def leave(self, server: str) -> None:
        """``server`` could not be reached. Of many requests that find out at once, the first
        goes on to the next one."""
        if server != self.current or len(self._servers) == 1:
            return
        self._index = (self._index + 1) % len(self._servers)
        log.warning("server left for the next", left=server, server=self.current)
