"""Chooses one of several API servers: the same, until it cannot be reached; then the next.

The client also leaves a server that takes connections and does not answer: when a request has
waited for PATIENCE_SECONDS and its caller gives up. It cuts the watches at a server that it leaves,
because a watch that hangs looks like one without news.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from livesize.machinery.telemetry import get_logger

log = get_logger("client.addresses")

PATIENCE_SECONDS = 2.0


class Addresses:
    """The client goes through them in turn, not at random, and stays with the one that answers."""

    def __init__(self, servers: Sequence[str]) -> None:
        assert servers, "a client needs a server"
        self._servers = tuple(servers)
        self._index = 0
        self._watches: dict[Callable[[], None], str] = {}

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
        for cut in [cut for cut, where in self._watches.items() if where == server]:
            cut()

    def given_up(self, server: str, waited_seconds: float) -> None:
        """A caller has stopped waiting for the answer of ``server``."""
        if waited_seconds >= PATIENCE_SECONDS:
            self.leave(server)

    @contextlib.contextmanager
    def watched(self, server: str, cut: Callable[[], None]) -> Iterator[None]:
        """``cut`` is called when ``server`` is left meanwhile."""
        self._watches[cut] = server
        try:
            yield
        finally:
            del self._watches[cut]
