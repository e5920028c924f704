"""Archives for the kernel: the same entries give the same bytes, and busybox unpacks them."""

from __future__ import annotations

import io
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.guest_images.cpio import (
    CpioFile,
    CpioFolder,
    CpioLink,
    Device,
    Entry,
    HostFile,
    digest,
    with_parents,
    write_cpio,
)
from livesize.guest_images.errors import GuestImageError

HEADER = 110
NAMES = st.text("abc-._é", min_size=1, max_size=6).filter(lambda name: name not in {".", ".."})
MODES = st.sampled_from([0o600, 0o644, 0o755])
ENTRIES = st.one_of(
    st.builds(CpioFile, content=st.binary(max_size=20), mode=MODES),
    st.builds(CpioLink, target=st.text("abc/.", min_size=1, max_size=9)),
    st.builds(Device, major=st.integers(0, 255), minor=st.integers(0, 255)),
)


def archive(entries: dict[str, Entry]) -> bytes:
    sink = io.BytesIO()
    write_cpio(sink, entries)
    return sink.getvalue()


def read_cpio(content: bytes) -> dict[str, tuple[int, bytes, int, int]]:
    """By name: mode, content, major and minor; as the kernel reads it, numbers by position."""
    found: dict[str, tuple[int, bytes, int, int]] = {}
    position = 0
    while True:
        header = content[position : position + HEADER]
        assert header[:6] == b"070701"
        numbers = [int(header[6 + 8 * n : 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_size = numbers[1], numbers[6], numbers[11]
        name = content[position + HEADER : position + HEADER + name_size - 1].decode()
        start = (position + HEADER + name_size + 3) // 4 * 4
        position = (start + size + 3) // 4 * 4
        if name == "TRAILER!!!":
            assert position == len(content)
            return found
        found[name] = (mode, content[start : start + size], numbers[9], numbers[10])


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, ENTRIES, max_size=4), max_size=4))
def test_what_is_written_is_read_whatever_the_order(
    tree: dict[str, dict[str, Entry]],
) -> None:
    entries = {
        f"{top}/{name}": entry for top, below in tree.items() for name, entry in below.items()
    }
    content = archive(entries)
    assert content == archive(dict(reversed(entries.items())))
    found = read_cpio(content)
    assert found.keys() == with_parents(entries).keys()
    for name, entry in entries.items():
        mode, data, major, minor = found[name]
        match entry:
            case CpioFile():
                assert (stat.S_ISREG(mode), data) == (True, entry.content)
                assert stat.S_IMODE(mode) == entry.mode
            case CpioLink():
                assert (stat.S_ISLNK(mode), data.decode()) == (True, entry.target)
            case Device():
                assert (stat.S_ISCHR(mode), major, minor) == (True, entry.major, entry.minor)


def test_busybox_unpacks_it(tmp_path: Path) -> None:
    program = tmp_path / "source"
    program.write_bytes(b"12345")
    program.chmod(0o750)
    entries: dict[str, Entry] = {
        "etc/name": CpioFile(b"guest\n", 0o600),
        "usr/bin/tool": HostFile(program),
        "usr/bin/again": HostFile(program, 0o711),
        "bin": CpioLink("usr/bin"),
        "tmp": CpioFolder(0o1777),
    }
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    command = ["busybox", "cpio", "-i", "-d"]
    subprocess.run(command, cwd=unpacked, input=archive(entries), check=True, capture_output=True)
    assert (unpacked / "etc/name").read_text() == "guest\n"
    assert stat.S_IMODE((unpacked / "etc/name").stat().st_mode) == 0o600
    assert (unpacked / "bin/tool").read_bytes() == b"12345"
    assert stat.S_IMODE((unpacked / "usr/bin/tool").stat().st_mode) == 0o750
    assert stat.S_IMODE((unpacked / "usr/bin/again").stat().st_mode) == 0o711
    assert stat.S_IMODE((unpacked / "tmp").stat().st_mode) == 0o1777
    assert (unpacked / "bin").readlink() == Path("usr/bin")


def test_parents_come_first_and_those_named_keep_their_mode() -> None:
    found = read_cpio(archive({"a/b/c": CpioFile(b""), "a": CpioFolder(0o700)}))
    assert list(found) == ["a", "a/b", "a/b/c"]
    assert [stat.S_IMODE(found[name][0]) for name in ("a", "a/b")] == [0o700, 0o755]


def test_the_digest_is_that_of_the_content_alone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"one")
    first = digest({"x": HostFile(source, 0o644)})
    os.utime(source, (1, 1))
    assert digest({"x": HostFile(source, 0o644)}) == first == digest({"x": CpioFile(b"one")})
    source.write_bytes(b"two")
    assert digest({"x": HostFile(source, 0o644)}) != first


@pytest.mark.parametrize("name", ["/etc", "../etc", "a/../b", "a//b", "a/", "", ".", "TRAILER!!!"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(GuestImageError, match="cannot be a path"):
        archive({name: CpioFolder()})
