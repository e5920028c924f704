"""The file of a guest's console: cut when it is too long, with one old copy, by whoever has it."""

from __future__ import annotations

from pathlib import Path

from livesize.agent.vm.console import OLD_NAME, cut, is_too_long


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    assert not is_too_long(str(log), 10), "there is none yet"
    log.write_bytes(b"0123456789")
    assert not is_too_long(str(log), 10)
    log.write_bytes(b"0123456789a")
    assert is_too_long(str(log), 10)


def test_who_appends_goes_on_from_the_beginning(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    with log.open("ab", buffering=0) as qemu:
        qemu.write(b"older" + b"newer")
        cut(str(log), limit_bytes=5)
        qemu.write(b"after")
        assert log.read_bytes() == b"after"
        assert (tmp_path / OLD_NAME).read_bytes() == b"newer"
        qemu.write(b"wards")
        cut(str(log), limit_bytes=8)
    assert (tmp_path / OLD_NAME).read_bytes() == b"terwards"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.log", OLD_NAME], "one old copy"
    assert (tmp_path / OLD_NAME).stat().st_mode & 0o007 == 0, "not for everybody"
