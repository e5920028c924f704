"""Ctrl-C, SIGTERM and a closed terminal end the demo, once: what comes later disturbs nobody who
cleans up.

    with Interrupts() as interrupts:        KeyboardInterrupt, from any plain code
        runner.run(interrupts.run(work()))  the same, after the work was cancelled
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeAlias

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_Handlers: TypeAlias = dict[signal.Signals, Any]


class Interrupts:
    def __init__(self) -> None:
        self._before: _Handlers = {}
        self._cancel: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        # What the caller has us ignore stays ignored, as `nohup` asks.
        heard = [one for one in _NUMBERS if signal.getsignal(one) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._interrupt) for number in heard}
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        _restore(self._before)

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """KeyboardInterrupt, when the work was interrupted and has ended."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = functools.partial(loop.call_soon_threadsafe, task.cancel)
        try:
            await work
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._cancel = None

    def _interrupt(self, _number: int, _frame: object) -> None:
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        if self._cancel is None:
            raise KeyboardInterrupt
        self._cancel()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """For cleaning up, which takes a second or two and is bounded."""
    before: _Handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _NUMBERS}
    try:
        yield
    finally:
        _restore(before)


def _restore(handlers: _Handlers) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
