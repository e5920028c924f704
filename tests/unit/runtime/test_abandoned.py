"""What a dead node left is found by its uid and its data directory; nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from livesize.runtime.abandoned import (
    Abandoned,
    NodePaths,
    observe_abandoned,
    remove_abandoned,
)
from livesize.runtime.interface import RuntimeCallError

ROOT = "livesize/n-1.0123"


@pytest.fixture
def places(tmp_path: Path) -> NodePaths:
    return NodePaths(
        hierarchies=(str(tmp_path / "memory"), str(tmp_path / "cpu")),
        roots=(ROOT, f"{ROOT}-vms"),
        words=(str(tmp_path / "data/config.toml"),),
        folders=(str(tmp_path / "data"),),
    )


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_of_a_machine_with_nothing_on_it_nothing_is_found(places: NodePaths) -> None:
    assert observe_abandoned(places) == Abandoned()
    remove_abandoned(places)


def test_groups_are_found_in_every_hierarchy_and_removed_from_the_inside_out(
    places: NodePaths, tmp_path: Path
) -> None:
    for hierarchy in ("memory", "cpu"):
        for path in (f"{ROOT}/pod-a/c-app", f"{ROOT}-vms/pod-b", "livesize/n-1.4567/pod-c"):
            (tmp_path / hierarchy / path).mkdir(parents=True)
    assert len(observe_abandoned(places).groups) == 2 * 5
    remove_abandoned(places)
    assert not observe_abandoned(places)
    assert (tmp_path / "memory/livesize/n-1.4567/pod-c").is_dir(), "another node's stay"


def test_a_daemon_is_known_by_the_data_directory_and_ended(
    places: NodePaths, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    ours, other = (
        subprocess.Popen(["sh", "-c", "sleep 100; :", "sh", word], start_new_session=True)
        for word in (places.words[0], f"{tmp_path}/other/config.toml")
    )
    started += [ours, other]
    found = [one.pid for one in observe_abandoned(places).processes]
    assert ours.pid in found
    assert other.pid not in found
    remove_abandoned(places)
    assert ours.wait(5) == -9
    assert other.poll() is None


def test_a_child_of_a_daemon_ends_too_however_quickly_the_daemon_does(
    places: NodePaths, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirtd names nothing of ours; without its parent it would not be known any more."""
    words = ["sh", "-c", "sleep 100 & echo $!; wait", "sh", places.words[0]]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    started.append(daemon)
    assert daemon.stdout is not None
    child = os.pidfd_open(int(daemon.stdout.readline()))
    send = signal.pidfd_send_signal

    def send_and_wait(descriptor: int, number: int) -> None:
        send(descriptor, number)
        select.select([descriptor], [], [], 5)

    monkeypatch.setattr(signal, "pidfd_send_signal", send_and_wait)
    try:
        remove_abandoned(places)
        assert select.select([child], [], [], 5)[0] == [child]
    finally:
        with contextlib.suppress(ProcessLookupError):
            send(child, signal.SIGKILL)
        os.close(child)
        daemon.stdout.close()


def test_what_a_person_runs_in_a_terminal_is_not_a_daemon(
    places: NodePaths, started: list[subprocess.Popen[bytes]]
) -> None:
    """An editor, or a shell, that names a file of ours."""
    ours, theirs = os.openpty()
    words = ["sh", "-c", "echo ready; sleep 100; :", "sh", places.words[0]]
    editor = subprocess.Popen(["setsid", "--ctty", *words], stdin=theirs, stdout=theirs)
    started.append(editor)
    try:
        assert os.read(ours, 100).startswith(b"ready")
        assert observe_abandoned(places) == Abandoned()
        remove_abandoned(places)
        assert editor.poll() is None
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_process_that_is_not_in_the_group_is_not_killed(
    places: NodePaths,
    started: list[subprocess.Popen[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its number stood in the group a moment ago; by now it is somebody else's."""
    monkeypatch.setattr("livesize.runtime.abandoned._REMOVE_SECONDS", 0.1)
    group = tmp_path / "memory" / ROOT / "pod-a"
    group.mkdir(parents=True)
    stranger = subprocess.Popen(["sleep", "100"])
    started.append(stranger)
    (group / "cgroup.procs").write_text(f"{stranger.pid}\n")
    assert [one.pid for one in observe_abandoned(places).processes] == [stranger.pid]
    with pytest.raises(RuntimeCallError, match=f"process {stranger.pid} "):
        remove_abandoned(places)
    assert stranger.poll() is None
