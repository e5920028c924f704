"""One real `livesize up` for all tests here that can share it: to start one takes seconds.

``up`` runs containers (root), ``fake_up`` none, and keeps an audit log of everything. Each is
started when it is first asked for, and ends with the last test of this folder. Who needs settings
of their own, or a data directory that nobody else has used, starts one (`system.up`).
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from system.up import Up

HERE = Path(__file__).parent
AUDIT_LOG = "audit/audit.log"
_running: dict[str, Up] = {}


# Of a module, so that fixtures of modules can use them; and so that they are asked for again when a
# test gets its second chance, after the others have ended.
@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Up:
    if "process" not in _running:
        started = Up(tmp_path_factory.mktemp("up"), allocatable="cpu=4,memory=4Gi")
        _start(started, "process")
    return _running["process"]


@pytest.fixture(scope="module")
def fake_up(tmp_path_factory: pytest.TempPathFactory) -> Up:
    if "fake" not in _running:
        folder = tmp_path_factory.mktemp("fake-up")
        folder.chmod(0o755)  # the audit log is somebody else's
        _start(
            Up(folder / "data", runtime="fake", allocatable="cpu=8,memory=8Gi"),
            "fake",
            *("--audit-log", str(folder / AUDIT_LOG), "--audit-level", "request"),
        )
    return _running["fake"]


def _start(made: Up, name: str, *words: str) -> None:
    try:
        made.start(*words)
    except BaseException:
        made.end()
        raise
    _running[name] = made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        if nextitem is None or HERE not in nextitem.path.parents:
            while _running:
                _running.popitem()[1].end()
