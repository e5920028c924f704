"""A process of Livesize runs until SIGTERM or SIGINT; a second signal ends its grace.

It tells its service manager (systemd's Type=notify) when it is ready and when it stops, and sends
the watchdog a beat as long as its event loop turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click
import uvloop

from livesize.machinery.clock import Clock
from livesize.machinery.interpreter import collect_in_pauses, settle_interpreter
from livesize.machinery.notify import Notifier
from livesize.machinery.privileges import drop_privileges
from livesize.machinery.telemetry import get_logger
from livesize.main.wiring.accounts import control_plane_account

log = get_logger("main")


class ProcessLifecycle:
    """Made in the event loop, first thing: a signal during the start counts too."""

    def __init__(self, clock: Clock) -> None:
        self.stop, self.stop_now = asyncio.Event(), asyncio.Event()
        self._clock = clock
        self._notifier = Notifier.from_environment()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def ready(self, words: str) -> None:
        settle_interpreter()
        say(words)
        self._notifier.ready(words.partition("\n")[0])

    async def stopped(self) -> None:
        """Return when a signal has come."""
        await self.stop.wait()
        self._notifier.stopping()
        log.info("stopping")

    async def beat(self) -> None:
        """What goes on beside the work, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._notifier.keep_alive(self._clock))
            group.create_task(collect_in_pauses(self._clock))

    async def run(self, words: str, *work: Coroutine[Any, Any, None]) -> None:
        """Say ``words``, and let ``work`` go on until a signal ends it."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (*work, self.beat())]
            self.ready(words)
            await self.stopped()
            for task in tasks:
                task.cancel()

    def _signalled(self) -> None:
        (self.stop_now if self.stop.is_set() else self.stop).set()


def run_in_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def drop_root() -> None:
    """Where root has started us and nothing more needs its rights: be an ordinary user."""
    account = control_plane_account()
    if account is not None:
        drop_privileges(account.uid, account.gid)


def say(text: str) -> None:
    """To whoever reads our output; that they have gone away must not keep us from our work."""
    with contextlib.suppress(OSError):
        click.echo(text)
        sys.stdout.flush()
