"""Files that are kept open: how many, for how long, and what is seen through them.

What a kernel answers for a group that is gone is tested with the drivers, on a kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from livesize.runtime.cgroups.file_cache import GroupFileCache
from livesize.runtime.interface import GoneError, RuntimeCallError


def opened(folder: Path) -> list[str]:
    """The names of the files below the folder that this process has open."""
    found = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(file.name for file in found if file.is_relative_to(folder))


def test_what_was_read_is_read_anew_each_time(tmp_path: Path) -> None:
    files, path = GroupFileCache(), tmp_path / "memory.max"
    for number in (4096, 8192, 1):
        path.write_text(f"{number}\n")
        assert files.read_number(str(path)) == number
        assert files.read_text(str(path)) == str(number)
    assert opened(tmp_path) == ["memory.max"]


def test_no_more_are_kept_than_allowed_and_the_oldest_goes_first(tmp_path: Path) -> None:
    files = GroupFileCache(limit=3)
    for name in "abcde":
        (tmp_path / name).write_text("1")
        files.read_number(str(tmp_path / name))
    assert opened(tmp_path) == ["c", "d", "e"]
    assert files.read_number(str(tmp_path / "a")) == 1
    assert opened(tmp_path) == ["a", "d", "e"]


def test_a_group_that_is_removed_is_let_go_of(tmp_path: Path) -> None:
    files = GroupFileCache()
    for name in ("pod-a", "pod-ab"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.max").write_text("1")
        files.read_number(str(tmp_path / name / f"{name}.max"))
        files.write_text(str(tmp_path / name / f"{name}.max"), "2")
    files.forget(str(tmp_path / "pod-a"))
    assert opened(tmp_path) == ["pod-ab.max", "pod-ab.max"]


def test_a_file_in_use_is_closed_only_when_it_is_done_with(tmp_path: Path) -> None:
    files = GroupFileCache()
    (tmp_path / "memory.max").write_text("1")
    in_use = files._reading.open(str(tmp_path / "memory.max"))
    files.forget(str(tmp_path))
    assert in_use.read() == b"1"
    del in_use
    assert opened(tmp_path) == []


def test_what_is_not_there_is_said_and_found_later(tmp_path: Path) -> None:
    files, path = GroupFileCache(), tmp_path / "cpu.max"
    with pytest.raises(GoneError, match=r"cannot read .*cpu.max"):
        files.read_text(str(path))
    with pytest.raises(GoneError, match=r"cannot write 5 to .*cpu.max"):
        files.write_text(str(path), "5")
    path.write_text("max\n")
    assert files.read_text(str(path)) == "max"
    with pytest.raises(RuntimeCallError, match="cannot read"):
        files.read_text(str(tmp_path))
