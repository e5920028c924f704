"""The pure parts of the process runtime: launch configuration, system-call filter, report."""

from __future__ import annotations

import errno
import marshal
import re
import struct

import pytest

from livesize.api.kernel_units import KernelLimits
from livesize.runtime.images import Image
from livesize.runtime.interface import ContainerConfig, PodConfig, StartRefusedError
from livesize.runtime.process.launch_config import (
    LaunchPaths,
    command_line,
    environment,
    plan_launch,
)
from livesize.runtime.process.seccomp import allowed_calls, build_filter
from livesize.runtime.process.shim import LaunchReport, parse_report
from livesize.runtime.process.system_calls import SYSTEM_CALLS
from livesize.runtime.security import (
    CAPABILITIES,
    DEFAULT_CAPABILITIES,
    grant_capabilities,
    require_non_root,
)

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
    launch = plan_launch(config(), IMAGE, PATHS, "nameserver 192.0.2.1\n", "x86_64")
    assert marshal.loads(marshal.dumps(launch)) == launch
    assert launch["files"]["/etc/resolv.conf"] == "nameserver 192.0.2.1\n"
    assert launch["cwd"] == "/srv"
    assert launch["own_network"] is False
    assert launch["join"] == ("/g/cgroup.procs",)


@pytest.mark.parametrize("number", [12, 13, 16, 17, 19, 21, 24, 27, 39])
def test_no_capability_that_reaches_the_host_is_kept(number: int) -> None:
    """NET_ADMIN, NET_RAW, SYS_MODULE, RAWIO, PTRACE, ADMIN, RESOURCE, MKNOD, BPF."""
    assert not grant_capabilities(config()).mask >> number & 1


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
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            position += if_true if holds else if_false


ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = list(ARCHITECTURES)
ADMIN = DEFAULT_CAPABILITIES | {"SYS_ADMIN"}
BY_ARGUMENT = ("clone", "socket", "personality")


def answer(machine: str, name: str, argument: int = 0, names: frozenset[str] | None = None) -> int:
    """0: allowed; else the error."""
    program = build_filter(machine, DEFAULT_CAPABILITIES if names is None else names)
    number = SYSTEM_CALLS[machine][name]
    found = run_filter(program, ARCHITECTURES[machine], number, argument)
    return 0 if found == ALLOWED else found & ~REFUSED


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "argument", "error"),
    [
        ("read", 0, 0),
        ("execve", 0, 0),
        ("ptrace", 0, 0),
        ("chroot", 0, 0),
        ("futex_waitv", 0, 0),
        ("clone", 0x00000011, 0),
        ("clone", 0x10000000, errno.EPERM),  # a user namespace
        ("clone3", 0, errno.ENOSYS),
        ("socket", 2, 0),
        ("socket", 40, errno.EPERM),
        ("personality", 0xFFFFFFFF, 0),
        ("personality", 0x0040000, errno.EPERM),  # without random addresses, and more
        ("mount", 0, errno.EPERM),
        ("mount_setattr", 0, errno.EPERM),
        ("unshare", 0, errno.EPERM),
        ("setns", 0, errno.EPERM),
        ("bpf", 0, errno.EPERM),
        ("io_uring_setup", 0, errno.EPERM),
        ("userfaultfd", 0, errno.EPERM),
        ("keyctl", 0, errno.EPERM),
        ("open_by_handle_at", 0, errno.EPERM),
        ("perf_event_open", 0, errno.EPERM),
        ("kexec_load", 0, errno.EPERM),
        ("mbind", 0, errno.EPERM),
    ],
)
def test_calls_as_containerd_allows_them(
    machine: str, name: str, argument: int, error: int
) -> None:
    assert answer(machine, name, argument) == error


@pytest.mark.parametrize("machine", MACHINES)
def test_a_capability_brings_its_calls(machine: str) -> None:
    for name in ("mount", "unshare", "setns", "clone3"):
        assert answer(machine, name, names=ADMIN) == 0
    assert answer(machine, "clone", 0x10000000, names=ADMIN) == 0
    assert answer(machine, "userfaultfd", names=ADMIN) == errno.EPERM
    assert answer(machine, "chroot", names=frozenset()) == errno.EPERM
    assert answer(machine, "syslog", names=frozenset({"SYSLOG"})) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_is_the_table(machine: str) -> None:
    """Every number there is, newer ones, and those of x32, which is no way around it."""
    program = build_filter(machine, DEFAULT_CAPABILITIES)
    allowed = set(allowed_calls(machine, DEFAULT_CAPABILITIES).values())
    judged = {SYSTEM_CALLS[machine][name] for name in (*BY_ARGUMENT, "clone3")}
    newest = max(SYSTEM_CALLS[machine].values())
    for number in {*range(600), *range(0x40000000, 0x40000000 + 600)} - judged:
        refused = REFUSED | (errno.ENOSYS if number > newest else errno.EPERM)
        found = run_filter(program, ARCHITECTURES[machine], number)
        assert found == (ALLOWED if number in allowed else refused), number


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_has_no_calls(machine: str) -> None:
    program = build_filter(machine, DEFAULT_CAPABILITIES)
    assert run_filter(program, 0x40000003, 1) == REFUSED | errno.ENOSYS
    assert len(program) // 8 < 1000


@pytest.mark.parametrize(("machine", "name", "number"), [
    ("x86_64", "read", 0), ("x86_64", "clone", 56), ("x86_64", "socket", 41),
    ("x86_64", "personality", 135), ("x86_64", "rseq", 334), ("x86_64", "clone3", 435),
    ("aarch64", "read", 63), ("aarch64", "clone", 220), ("aarch64", "socket", 198),
    ("aarch64", "personality", 92), ("aarch64", "rseq", 293), ("aarch64", "mseal", 462),
])  # fmt: skip
def test_the_numbers_are_the_kernels(machine: str, name: str, number: int) -> None:
    assert SYSTEM_CALLS[machine][name] == number


def test_an_unknown_machine_has_no_filter() -> None:
    assert build_filter("riscv64", DEFAULT_CAPABILITIES) == b""


def test_an_unconfined_container_has_no_filter() -> None:
    unconfined = plan_launch(config(seccomp_unconfined=True), IMAGE, PATHS, "", "x86_64")
    assert unconfined["seccomp"] == ""
    assert plan_launch(config(), IMAGE, PATHS, "", "x86_64")["seccomp"] != ""


def granted(add: tuple[str, ...] = (), drop: tuple[str, ...] = ()) -> frozenset[str]:
    return grant_capabilities(config(add_capabilities=add, drop_capabilities=drop)).names


def test_capabilities_as_a_pod_asks_for_them() -> None:
    assert granted() == DEFAULT_CAPABILITIES
    assert granted(add=("NET_ADMIN",)) == DEFAULT_CAPABILITIES | {"NET_ADMIN"}
    assert granted(add=("net_admin",)) == DEFAULT_CAPABILITIES | {"NET_ADMIN"}
    assert granted(drop=("CHOWN",)) == DEFAULT_CAPABILITIES - {"CHOWN"}
    assert granted(drop=("ALL",)) == frozenset()
    assert granted(("NET_BIND_SERVICE",), ("ALL",)) == {"NET_BIND_SERVICE"}
    assert granted(("ALL",), ("SYS_ADMIN",)) == CAPABILITIES.keys() - {"SYS_ADMIN"}
    assert granted(("CHOWN",), ("CHOWN",)) == DEFAULT_CAPABILITIES - {"CHOWN"}


@pytest.mark.parametrize("name", ["CAP_CHOWN", "ROOT", ""])
def test_a_capability_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(StartRefusedError, match="there is no capability"):
        granted(add=(name,))
    with pytest.raises(StartRefusedError, match="there is no capability"):
        granted(drop=(name,))


@pytest.mark.parametrize("add", [("MKNOD",), ("ALL",)])
def test_devices_are_not_to_be_had_where_nothing_holds_them(add: tuple[str, ...]) -> None:
    with pytest.raises(StartRefusedError, match="MKNOD"):
        plan_launch(config(add_capabilities=add), IMAGE, PATHS, "", "x86_64")


@pytest.mark.parametrize(
    ("user", "image_user", "words"),
    [
        (None, "", "container has runAsNonRoot and image will run as root"),
        (None, "0", "container has runAsNonRoot and image will run as root"),
        (None, "00:5", "container has runAsNonRoot and image will run as root"),
        (None, "web:web", "image has non-numeric user (web), cannot verify user is non-root"),
        (0, "1000", "container's runAsUser breaks non-root policy"),
        (None, "1000", None),
        (1000, "", None),
    ],
)
def test_root_is_refused_to_who_must_not_be_root(
    user: int | None, image_user: str, words: str | None
) -> None:
    pod = PodConfig("u", "default", "db", KernelLimits(2, None, None))
    wanted = config(run_as_user=user, run_as_non_root=True)
    if words is None:
        require_non_root(wanted, pod, image_user)
        return
    with pytest.raises(StartRefusedError, match=re.escape(words)) as refused:
        require_non_root(wanted, pod, image_user)
    assert str(refused.value).endswith('(pod: "db_default(u)", container: main)')
    require_non_root(config(run_as_user=user), pod, image_user)


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
