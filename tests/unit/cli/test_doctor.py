"""`livesize doctor` on machines that exist only as a few files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from livesize.cli.app import cli
from livesize.cli.doctor.checks import (
    Finding,
    check_busybox,
    check_cgroups,
    check_cgroups_writable,
    check_kubectl,
    check_machine,
    check_python,
    check_root,
)
from livesize.cli.doctor.containerd_checks import ContainerdTools, check_containerd
from livesize.cli.doctor.vm_checks import (
    VmTools,
    accelerator_finding,
    check_binding,
    check_libvirt,
    check_qemu,
)

V1 = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n" + "".join(
    f"{name}\t1\t1\t1\n" for name in ("cpu", "cpuacct", "memory", "pids")
)


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v1_files(*mounted: str, table: str = V1) -> dict[str, str]:
    return {"proc/cgroups": table, **{f"sys/fs/cgroup/{name}/tasks": "" for name in mounted}}


@pytest.mark.parametrize(
    ("files", "ok", "words"),
    [
        ({"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids"}, True, "cgroup v2"),
        ({"sys/fs/cgroup/cgroup.controllers": "cpuset io"}, False, "without cpu, memory, pids"),
        (v1_files("cpu", "cpuacct", "memory", "pids"), True, "cgroup v1"),
        (v1_files("cpu", "cpuacct", "pids"), False, "without memory"),
        (
            v1_files(
                *("cpu", "cpuacct", "memory", "pids"),
                table=V1.replace("memory\t1\t1\t1", "memory\t0\t1\t0"),
            ),
            False,
            "without memory",
        ),
        ({}, False, "no cgroups"),
    ],
    ids=[
        "v2",
        "v2 without controllers",
        "v1",
        "v1, memory not mounted",
        "v1, memory off in the kernel",
        "nothing",
    ],
)
def test_cgroups(tmp_path: Path, files: dict[str, str], ok: bool, words: str) -> None:
    finding = check_cgroups(machine(tmp_path, files))
    assert finding.ok is ok
    assert words in finding.what
    assert bool(finding.remedy) is not ok


@pytest.mark.parametrize(("options", "ok"), [("rw,nosuid", True), ("ro,nosuid", False)])
def test_a_read_only_mount_is_seen_even_by_root(tmp_path: Path, options: str, ok: bool) -> None:
    mounts = f"cgroup /sys/fs/cgroup/memory cgroup {options},memory 0 0\n"
    files = {"sys/fs/cgroup/memory/tasks": "", "proc/self/mounts": mounts}
    finding = check_cgroups_writable(machine(tmp_path, files))
    assert finding.ok is ok


def test_the_size_of_the_machine(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name: x\n\nprocessor\t: 1\n",
        "proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable:  1048576 kB\n",
    }
    assert check_machine(machine(tmp_path, files)) == Finding(
        "machine", True, "2 CPUs, 1024 MiB of memory available"
    )
    assert not check_machine(tmp_path / "nowhere").ok


@pytest.mark.parametrize(
    ("finding", "ok"),
    [
        (check_python((3, 11, 0)), True),
        (check_python((3, 10, 9)), False),
        (check_root(0), True),
        (check_root(1000), False),
        (check_busybox("/bin/busybox"), True),
        (check_busybox(None), False),
        (check_kubectl("v1.32.4-dispatcher"), True),
        (check_kubectl("v2.0.0"), True),
        (check_kubectl("v1.9.0"), False),
        (check_kubectl("unknown"), False),
        (check_kubectl(None), False),
        (check_qemu("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright 2003"), True),
        (check_qemu("QEMU emulator version 8.2.2"), False),
        (check_qemu("unknown"), False),
        (check_qemu(None), False),
        (check_libvirt("libvirtd (libvirt) 11.3.0\n"), True),
        (check_libvirt("libvirtd (libvirt) 9.0.0\n"), False),
        (check_libvirt(None), False),
        (check_binding(VmTools(None, None)), True),
        (check_binding(VmTools(None, None, "No module named 'libvirt'")), False),
    ],
)
def test_what_is_missing_always_comes_with_a_remedy(finding: Finding, ok: bool) -> None:
    assert finding.ok is ok
    assert bool(finding.remedy) is not ok


def test_it_prints_json_and_a_named_server_that_is_not_there_fails(tmp_path: Path) -> None:
    missing = str(tmp_path / "kubeconfig")
    answer = CliRunner().invoke(cli, ["doctor", "-o", "json", "--kubeconfig", missing])
    findings = {finding["name"]: finding for finding in json.loads(answer.output)}
    assert answer.exit_code == 1
    assert findings["python"]["ok"]
    assert not findings["server"]["ok"]
    assert missing in findings["server"]["what"]


def test_virtual_machines_are_never_a_must() -> None:
    missing = (check_qemu(None), check_libvirt(None), check_binding(VmTools(None, None, "none")))
    assert all(finding.optional for finding in missing)


@pytest.mark.parametrize(("accelerator", "word"), [("kvm", "KVM: "), ("tcg", "TCG (")])
def test_the_accelerator_is_said_with_its_reason(accelerator: str, word: str) -> None:
    finding = accelerator_finding(accelerator, "there is no /dev/kvm")
    assert finding.ok
    assert finding.what.startswith(word)
    assert finding.what.endswith(": there is no /dev/kvm")


def test_main_hands_in_probes_of_what_the_command_line_cannot_know(tmp_path: Path) -> None:
    words = ["doctor", "-o", "json", "--kubeconfig", str(tmp_path / "none")]
    probes = [lambda: [accelerator_finding("tcg", "it was tried")]]
    with_probes = json.loads(CliRunner().invoke(cli, words, obj=probes).output)
    without = json.loads(CliRunner().invoke(cli, words).output)
    names = [finding["name"] for finding in with_probes]
    assert [finding["name"] for finding in without] == [
        one for one in names if one != "accelerator"
    ]
    assert {"qemu", "libvirt", "libvirt-python", "accelerator"} <= set(names)


@pytest.mark.parametrize(
    ("tools", "ok", "words"),
    [
        (ContainerdTools(("runc",), "", True, False), False, "runc not installed"),
        (ContainerdTools((), "containerd x 1.6.20~ds1", False, False), False, "grpcio"),
        (ContainerdTools((), "containerd x 1.6.20~ds1", True, False), True, "hostNetwork: true"),
        (ContainerdTools((), "containerd x v2.1.4 abc", True, True), True, "containerd 2.1.4, CNI"),
        (ContainerdTools((), "", True, True), True, "unknown version"),
        (ContainerdTools((), "1.6.20", True, True), True, "a private one writes control groups"),
        (
            ContainerdTools((), "1.6.20", True, True, "/c.sock", "systemd"),
            True,
            "for the one at /c.sock systemd writes the control groups",
        ),
        (
            ContainerdTools((), "1.6.20", True, True, "/c.sock", "cgroupfs"),
            True,
            "the one at /c.sock writes control groups itself",
        ),
    ],
)
def test_containerd(tools: ContainerdTools, ok: bool, words: str) -> None:
    found = check_containerd(tools)
    assert found.ok is ok
    assert found.optional
    assert words in found.what
    assert ok or "--runtime containerd" in found.remedy


def test_what_a_user_may_not_look_at_is_a_finding_and_no_traceback() -> None:
    def containerd() -> list[Finding]:
        raise PermissionError(13, "Permission denied", "/etc/cni/net.d")

    answer = CliRunner().invoke(cli, ["doctor"], obj=[containerd])
    assert answer.exception is None or isinstance(answer.exception, SystemExit)
    assert "containerd: cannot be looked at: Permission denied (/etc/cni/net.d)" in answer.output
    assert "run `livesize doctor` as root" in answer.output


def test_a_network_configuration_that_only_root_may_read() -> None:
    tools = ContainerdTools(missing=(), version="containerd 1.6.20", has_grpc=True, network=None)
    finding = check_containerd(tools)
    assert finding.ok
    assert "its CNI configuration is for root to read" in finding.what
