"""A dead process's number given to a thread: before Linux 6.9 opening it was a failure for ever."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from livesize.runtime.process.processes import open_process, signal_process


def test_a_number_that_a_thread_has_now_is_not_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert open_process(4711, lambda _: True) is None
    assert not signal_process(4711, lambda _: True, signal.SIGTERM)
