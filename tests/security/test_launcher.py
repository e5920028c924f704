"""What a hostile image can do to the process that becomes its container, or enters it: nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.runtime import oci
from livesize.runtime.interface import ContainerGroup, Mount, RuntimeCallError
from livesize.runtime.process.runtime import ProcessRuntime
from livesize.runtime.streams import ExecRequest
from system.process_pod import MIB, UID, config, import_image, process_pod, run, seen

pytestmark = pytest.mark.security

# Runs as the interpreter of the host, inside the container: it keeps its own file open, ends (a
# running program cannot be written to), and the shell tries to write to it, change it, replace it.
_KEEP_AND_TRY = """
import os
kept = os.open("/proc/self/exe", os.O_RDONLY)
os.set_inheritable(kept, True)
file = f"/proc/self/fd/{kept}"
words = f"(: >> {file}) && echo WRITABLE; chmod 700 {file} && echo CHANGED"
os.execv("/bin/sh", ["sh", "-c", words])
"""


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this Python that only the runtime runs: the real one is busy running this test."""
    copy = tmp_path / "python"
    shutil.copy(Path(sys.executable).resolve(), copy)
    copy.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(copy))
    return copy


@pytest.fixture
async def runtime(tmp_path: Path, root_group: str) -> AsyncIterator[ProcessRuntime]:
    async with process_pod(tmp_path, root_group) as opened:
        yield opened


def libraries() -> tuple[Mount, ...]:
    """What a dynamic program of this machine needs, read-only."""
    folders = ("/usr/lib", "/lib64", "/lib", sys.base_prefix + "/lib")
    found = sorted({one for one in folders if Path(one).is_dir()})
    return tuple(Mount(os.path.realpath(one), one, read_only=True) for one in found)


async def test_the_hosts_python_cannot_be_written_through_proc_self_exe(
    interpreter: Path, runtime: ProcessRuntime
) -> None:
    """The command is /proc/self/exe: the launcher executes itself, as its own container."""
    command = ("/proc/self/exe", "-I", "-c", _KEEP_AND_TRY)
    said = await run(runtime, "", command=command, mounts=libraries())
    assert "Read-only file system" in said
    assert "WRITABLE" not in said
    assert "CHANGED" not in said
    assert stat.S_IMODE(interpreter.stat().st_mode) == 0o755


async def test_the_hosts_python_cannot_be_written_through_an_exec(
    interpreter: Path, runtime: ProcessRuntime
) -> None:
    await runtime.start_container(config("sleep 100", mounts=libraries()))
    command = ("/proc/self/exe", "-I", "-c", _KEEP_AND_TRY)
    result = await runtime.run_command(UID, "main", command, env=(), timeout_seconds=20)
    assert "Read-only file system" in result.output
    assert "WRITABLE" not in result.output
    assert stat.S_IMODE(interpreter.stat().st_mode) == 0o755


async def test_who_enters_cannot_be_looked_into_by_the_container(runtime: ProcessRuntime) -> None:
    """The container watches for new processes and tries to open what they hold open, and where
    they stand, while commands are run in it again and again."""
    watcher = (
        "while :; do for p in /proc/[0-9]*; do"
        " n=${p#/proc/}; [ $n = 1 ] || [ $n = self ] && continue;"
        " x=$(readlink $p/exe) && case $x in */busybox) ;; ?*) echo LOOKED INTO $x;; esac;"
        " done; done"
    )
    view = await runtime.start_container(config(watcher))
    for _ in range(20):
        await runtime.run_command(UID, "main", ("true",), env=(), timeout_seconds=20)
    assert "LOOKED INTO" not in Path(view.log_path).read_text()


# Which file each descriptor is, and which the container's own /dev/null.
_SHOW_DESCRIPTORS = (
    "stat -L -c input=%d:%i /proc/self/fd/0; stat -c null=%d:%i /dev/null;"
    "ls -l /proc/self/fd > /tmp/list; echo descriptors=$(grep -c -e '->' /tmp/list)"
)


def same_null(said: str) -> bool:
    shown = dict(line.split("=") for line in said.splitlines() if "=" in line)
    assert shown["descriptors"] == "3"
    return shown["input"] == shown["null"]


async def test_no_descriptor_leads_to_the_host(runtime: ProcessRuntime) -> None:
    """The input of a container without one was the host's own /dev/null: who may change its mode
    changes it for everybody."""
    assert same_null(await run(runtime, _SHOW_DESCRIPTORS))


async def test_no_descriptor_of_an_exec_leads_to_the_host(runtime: ProcessRuntime) -> None:
    await runtime.start_container(config("sleep 100"))
    words = ("sh", "-c", _SHOW_DESCRIPTORS)
    result = await runtime.run_command(UID, "main", words, env=(), timeout_seconds=20)
    assert same_null(result.output)


@pytest.mark.parametrize("number", [3, 4, 5, 9])
async def test_no_working_folder_leads_to_the_host(runtime: ProcessRuntime, number: int) -> None:
    try:
        said = await run(runtime, "ls -a; pwd", working_dir=f"/proc/self/fd/{number}")
    except RuntimeCallError as refused:
        assert "cannot start" in str(refused)  # noqa: PT017 - either is fine; the host is what counts
        return
    assert "home" not in said


_NO_LINES = (
    b"evil:x:0:zero:::\n",  # a group that is no number
    "evil:x:²:²:a:b:c\n".encode(),  # digits that are no number
    b"evil:x:99999999999999999999:0:a:/:c\n",  # larger than any uid
    b"evil:x:4294967295:0:a:/:c\n",  # nobody's
    b"evil:x:-1:-1:a:/:c\n",
    b"\xff\xfe:\n::::::::\n\0\0:x:1:1\n",  # no text
)


async def test_a_malformed_line_of_passwd_is_no_line(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    layer = {"etc/passwd": oci.LayerFile(b"".join(_NO_LINES) + b"good:x:1234:77:a:/srv:c\n")}
    image = import_image(runtime, tmp_path, layer, user="good")
    said = await run(runtime, "grep -e ^[UG]id: /proc/self/status; echo $HOME", image=image)
    assert said.split() == ["Uid:", *["1234"] * 4, "Gid:", *["77"] * 4, "/srv"]
    image = import_image(runtime, tmp_path, {**layer, "x": oci.LayerFile(b"")}, user="evil")
    with pytest.raises(RuntimeCallError, match="the image has no user 'evil'"):
        await run(runtime, "id", image=image, attempt=1)


async def test_a_user_given_as_a_number_is_that_number(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    """Of a passwd that calls root "1000"."""
    passwd = b"1000:x:0:0:root:/root:/bin/sh\n"
    layer = {"etc/passwd": oci.LayerFile(passwd), "etc/group": oci.LayerFile(b"77:x:0:\n")}
    image = import_image(runtime, tmp_path, layer, user="1000:77")
    assert (await run(runtime, "id -u; id -g", image=image)).split() == ["1000", "77"]
    said = await run(runtime, "id -u", image=image, run_as_user=1000, attempt=1)
    assert said.split() == ["1000"]


@pytest.mark.parametrize("target", ["/dev/zero", "/"])
async def test_a_passwd_that_is_no_file_is_not_read(
    runtime: ProcessRuntime, tmp_path: Path, target: str
) -> None:
    image = import_image(runtime, tmp_path, {"etc/passwd": oci.LayerLink(target)})
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeCallError, match=r"/etc/passwd .* is not a regular file"):
            await run(runtime, "id", image=image, run_as_user=7)


async def test_a_passwd_without_end_is_not_read_to_it(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    layer = {"etc/passwd": oci.LayerFile(b"a:x:1:1::/:\n" * 500_000)}
    image = import_image(runtime, tmp_path, layer)
    with pytest.raises(RuntimeCallError, match=r"/etc/passwd .* is larger than 1 MiB"):
        await run(runtime, "id", image=image, run_as_user=7)


async def test_files_of_the_image_are_read_in_the_containers_group(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    """The kernel charges who reads a file first."""
    layer = {"etc/passwd": oci.LayerFile(b"a:x:1:1::/:\n" * 80_000)}
    image = import_image(runtime, tmp_path, layer)
    drop_pages(tmp_path / "state")
    await runtime.start_container(config("sleep 100", image=image, run_as_user=7))
    assert runtime.read(ContainerGroup(UID, "main")).memory_usage_bytes > MIB * 0.9


def drop_pages(folder: Path) -> None:
    """What the unpacking has read and written is the test's own: let it go."""
    os.sync()
    for path in folder.rglob("passwd"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def test_exec_into_a_container_with_a_hostile_passwd(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await runtime.start_container(config("sleep 100"))
    inside = Path(f"/proc/{seen(runtime).pid}/root/etc/passwd")
    inside.write_bytes(b"root:x:0:zero:::\n:\xff\n")
    request = ExecRequest(UID, "main", ("true",))
    session = await runtime.exec(request)
    assert await session.exit_code() == 0
    await session.close()
    inside.unlink()
    os.mkfifo(inside)
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeCallError, match="is not a regular file"):
            await runtime.exec(request)
    inside.unlink()
    inside.symlink_to("/dev/zero")
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeCallError, match="is not a regular file"):
            await runtime.exec(request)
