"""A container's working folder is one of its own, however its path leads there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from livesize.runtime.process.launch import LaunchError, enter_working_dir


def test_a_folder_that_no_path_leads_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a descriptor of the machine's would lead to it: from inside, it stands nowhere."""
    monkeypatch.chdir(tmp_path)  # and back again
    (tmp_path / "gone").mkdir()
    descriptor = os.open(tmp_path / "gone", os.O_RDONLY)
    (tmp_path / "gone").rmdir()
    try:
        with pytest.raises(LaunchError, match="is not in the container"):
            enter_working_dir(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def test_one_that_is_not_there_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    enter_working_dir(str(tmp_path / "a" / "b"))
    assert Path.cwd() == tmp_path / "a" / "b"
