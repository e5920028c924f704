"""The pure parts of the process runtime: launch configuration, system-call filter, report."""

from __future__ import annotations

import errno
import marshal
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.kernel_units import KernelLimits
from livesize.runtime.images import Image
from livesize.runtime.interface import ContainerConfig
from livesize.runtime.process.launch_config import (
    CAPABILITY_MASK,
    LaunchPaths,
    command_line,
    environment,
    plan_launch,
)
from livesize.runtime.process.seccomp import build_filter, denied_calls
from livesize.runtime.process.shim import LaunchReport, parse_report

IMAGE = Image("sha256:0", "/rootfs", ("/entry",), ("default",), ("A=image", "B=image"), "/srv")
PATHS = LaunchPaths("/d/ready", "/d/pid", "/d/upper", "/d/work", "/d/root", ("/g/cgroup.procs",))
ALLOWED = 0x7FFF0000
REFUSED = 0x00050000


def config(
    command: tuple[str, ...] = (), args: tuple[str, ...] = (), **changes: object
) -> ContainerConfig:
    values: dict[str, object] = {
        "pod_uid": "u",
        "name": "main",
        "image": "i",
        "env": (("A", "pod"),),
        "working_dir": "",
        "hostname": "db",
        "limits": KernelLimits(2, None, None),
    }
    return ContainerConfig(command=command, args=args, **{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        pytest.param((), (), ("/entry", "default"), id="the image's own"),
        pytest.param((), ("x",), ("/entry", "x"), id="args replace cmd"),
        pytest.param(("run",), (), ("run",), id="command replaces both"),
        pytest.param(("run",), ("x",), ("run", "x"), id="command and args"),
    ],
)
def test_command_and_args_as_kubernetes_reads_them(
    command: tuple[str, ...], args: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert command_line(config(command, args), IMAGE) == expected


def test_the_pods_variables_win_over_the_images() -> None:
    variables = environment(config(), IMAGE)
    assert variables["A"] == "pod"
    assert variables["B"] == "image"
    assert variables["HOSTNAME"] == "db"
    assert "/bin" in variables["PATH"].split(":")


def test_what_the_launcher_reads_survives_marshalling() -> None:
    launch = plan_launch(config(), IMAGE, PATHS, "nameserver 192.0.2.1\n", b"\x01\x02")
    assert marshal.loads(marshal.dumps(launch)) == launch
    assert launch["files"]["/etc/resolv.conf"] == "nameserver 192.0.2.1\n"
    assert launch["cwd"] == "/srv"
    assert launch["own_network"] is False
    assert launch["join"] == ("/g/cgroup.procs",)


@pytest.mark.parametrize("number", [12, 13, 16, 17, 19, 21, 24, 27, 39])
def test_no_capability_that_reaches_the_host_is_kept(number: int) -> None:
    """NET_ADMIN, NET_RAW, SYS_MODULE, RAWIO, PTRACE, ADMIN, RESOURCE, MKNOD, BPF."""
    assert not CAPABILITY_MASK >> number & 1


def run_filter(program: bytes, architecture: int, number: int, first_argument: int = 0) -> int:
    """A seccomp filter, interpreted: classic BPF over struct seccomp_data."""
    call = struct.pack("=IIQQ", number, architecture, 0, first_argument)
    code = list(struct.iter_unpack("=HBBI", program))
    position = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", call, value)
        elif operation == 0x06:
            return int(value)
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            position += if_true if holds else if_false


MACHINES = [("x86_64", 0xC000003E, 56), ("aarch64", 0xC00000B7, 220)]


@pytest.mark.parametrize(("machine", "architecture", "clone"), MACHINES)
def test_denied_calls_are_refused_and_namespaces_with_them(
    machine: str, architecture: int, clone: int
) -> None:
    program = build_filter(machine)
    for number in denied_calls(machine).values():
        assert run_filter(program, architecture, number) == REFUSED | errno.EPERM
    assert run_filter(program, architecture, clone, 0x10000000) == REFUSED | errno.EPERM
    assert run_filter(program, architecture, clone, 0x00000011) == ALLOWED
    assert run_filter(program, architecture, 435) == REFUSED | errno.ENOSYS  # clone3
    assert run_filter(program, 0x40000003, 1) == REFUSED | errno.ENOSYS  # another architecture


@given(st.sampled_from(MACHINES), st.integers(0, 600))
def test_exactly_the_listed_calls_are_refused(machine: tuple[str, int, int], number: int) -> None:
    name, architecture, _ = machine
    refused = run_filter(build_filter(name), architecture, number) != ALLOWED
    assert refused == (number in denied_calls(name).values() or number == 435)


def test_an_unknown_machine_has_no_filter() -> None:
    assert build_filter("riscv64") == b""
    assert denied_calls("riscv64") == {}


@pytest.mark.parametrize(
    ("received", "report"),
    [
        pytest.param(b"started\n", LaunchReport(started=True), id="it runs"),
        pytest.param(
            b"note a b\nstarted\n", LaunchReport(started=True, notes=("a b",)), id="with a note"
        ),
        pytest.param(b"error no such\n", LaunchReport(error="no such"), id="it does not"),
        pytest.param(
            b"started\nerror exec\n", LaunchReport(error="exec"), id="it failed at the very end"
        ),
        pytest.param(b"", LaunchReport(), id="not a word"),
    ],
)
def test_the_launchers_words(received: bytes, report: LaunchReport) -> None:
    assert parse_report(received) == report
