"""Files that were new when the power went may be there and empty: nothing fails because of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import click
import pytest

from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.main.wiring.startup_errors import reported_startup_errors
from livesize.runtime.interface import ContainerConfig, ContainerPhase, PodConfig
from livesize.runtime.process.container import ProcessContainer
from livesize.runtime.process.records import ContainerAttempt, ContainerRecord, ProcessRecords

LIMITS = KernelLimits(1024, None, None)
CONFIG = ContainerConfig("u", "app", "image", ("sleep",), (), (), "", "db", LIMITS)
RECORD = ContainerRecord("id", CONFIG, "sha256:1", boot_id="before", created_at=1.0)


class Groups:
    """Nothing is left of the groups either."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: 0


@pytest.fixture
def records(tmp_path: Path) -> ProcessRecords:
    return ProcessRecords(tmp_path)


@pytest.fixture
def attempt(records: ProcessRecords) -> ContainerAttempt:
    records.save_pod(PodConfig("u", "default", "db", LIMITS))
    made = records.attempt("u", "app", 0)
    made.make(RECORD)
    return made


def found(attempt: ContainerAttempt) -> ProcessContainer:
    groups: Any = Groups()
    container = ProcessContainer(attempt, RECORD, "group", groups, SystemClock())
    container.attach("after")
    return container


def test_what_is_not_whole_was_not_written(
    records: ProcessRecords, attempt: ContainerAttempt
) -> None:
    """Each of these kept the runtime from being opened again."""
    (attempt.folder / "record.json").write_bytes(b"")
    (attempt.folder / "outcome.json").write_bytes(b'{"exit_code":')
    (attempt.folder.parents[2] / "pod.json").write_bytes(b"")
    assert attempt.record() is None
    assert attempt.outcome() is None
    assert records.load_pod("u") is None


@pytest.mark.parametrize("content", [b"", b"12", b"\n", b"12 x"])
def test_a_start_of_before_is_shown_as_ended(attempt: ContainerAttempt, content: bytes) -> None:
    for name in ("pid", "shim", "exit"):
        (attempt.folder / name).write_bytes(content)
    view = found(attempt).view()
    assert (view.phase, view.before_boot, view.pid) == (ContainerPhase.EXITED, True, 0)
    assert attempt.shim_pid() is None


def test_a_disk_that_is_full_keeps_nothing_running(
    attempt: ContainerAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end could not be noted, so nobody ever heard of it."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ContainerAttempt, "save_outcome", full)
    container = found(attempt)
    assert container.ended.is_set()
    assert not container.is_running


async def test_promises_that_cannot_be_read_are_said_so(tmp_path: Path) -> None:
    path = tmp_path / "allocations.db"
    checkpoint = await open_checkpoint(path)
    await checkpoint.close()
    with apsw.Connection(str(path)) as connection:
        connection.execute("INSERT INTO allocations VALUES ('u', x'7b')")
    checkpoint = await open_checkpoint(path)
    with (
        pytest.raises(click.ClickException, match="what was promised to pod u cannot be read"),
        reported_startup_errors(),
    ):
        await checkpoint.load()
    await checkpoint.close()
