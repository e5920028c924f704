"""A virtual machine in a real `livesize up`, and what can be asked of it without asking Livesize.

The guest is asked by its agent, the domain at the private libvirtd, groups are plain files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import libvirt_qemu

from leaks import claim
from livesize.api.vm_changes import VmNote
from livesize.api.vm_identity import vm_uid_of
from livesize.guest_images.kernel import default_cache_dir
from livesize.guest_images.vm_guest import INITRD_NAME, KERNEL_NAME, build_guest, install_guest
from livesize.machinery.data_directory import DataDirectory
from livesize.runtime.libvirt.identity import domain_name
from livesize.runtime.libvirt.model import NOTE_KEY, NOTE_URI, render_note
from system.groups import GroupFiles, group_of
from system.up import Up
from system.vm_sizes import (
    MIB,
    Device,
    Sizes,
    base_bytes,
    devices_in,
    dimms_in,
    has_balloon,
    is_clear,
    note_in,
    persistent_bytes,
    plugged_in,
    plugged_in_by_node,
    requested_bytes,
    vcpus_of,
)

READY_SECONDS = 90  # a guest boots in 3 s; under emulation on a busy machine in many more
RESIZED_SECONDS = 60
AGENT_SECONDS = 20


class Vm:
    """One VM pod."""

    def __init__(self, up: Up, name: str = "vm1") -> None:
        self.up = up
        self.name = name
        self.path = f"/api/v1/namespaces/default/pods/{name}"
        self.libvirt = DataDirectory(up.directory).vms / "libvirt"

    def create(self, cpu: str, memory: str, /, **vm: Any) -> None:
        self.ask_for(cpu, memory, **vm)
        self.wait_ready()

    def ask_for(self, cpu: str, memory: str, /, **vm: Any) -> None:
        """Create it, and do not wait."""
        code, answer = self.up.request(
            "POST", "/api/v1/namespaces/default/pods", manifest(self.name, cpu, memory, **vm)
        )
        assert code == 201, answer

    def wait_ready(self, restarts: int = 0) -> None:
        def ready() -> bool:
            status = self.status
            return status.get("state") == "Running" and status["restartCount"] == restarts

        self.until(ready, f"the guest of {self.name} is heard", READY_SECONDS)
        self.until(self._agent_answers, "its agent answers", READY_SECONDS)

    def _agent_answers(self) -> bool:
        try:
            self._agent("guest-ping")
        except libvirt.libvirtError:
            return False
        return True

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 30) -> Any:
        """As ``Up.wait_until``, but seldom enough to leave the machine to the guest."""
        deadline = time.monotonic() + seconds
        while not (value := holds()):
            assert time.monotonic() < deadline, f"waited {seconds} s until {what}:\n{self.log()}"
            time.sleep(0.1)
        return value

    def log(self) -> str:
        """Everything that says what has become of it: Livesize, QEMU and the guest's console."""
        told = sorted((self.libvirt / "log").glob("**/*.log"))
        last = [f"== {path}\n{path.read_text(errors='replace')[-2000:]}" for path in told]
        return "\n".join([self.up.log(), *last])

    @property
    def pod(self) -> dict[str, Any]:
        return self.up.pod(self.name)

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.pod.get("status", {}).get("virtualMachineStatus", {})
        return status

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.pod["status"].get("resizeState", {})
        return state

    @property
    def group(self) -> GroupFiles:
        return group_of(self.up, self.name, "vm")

    @property
    def console(self) -> Path:
        """Where the newest start of the VM writes its serial console."""
        logs = (self.libvirt / "log" / "vms" / self.pod["metadata"]["uid"]).glob("[0-9]*.log")
        return max(logs, key=lambda path: int(path.stem))

    @property
    def overhead(self) -> int:
        text = self.pod["spec"]["overhead"]["memory"]
        assert text.endswith("Mi")
        return int(text.removesuffix("Mi")) * MIB

    def condition(self, kind: str) -> dict[str, Any] | None:
        conditions = self.pod["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), None)

    # Changing it.

    def ask(
        self, cells: Mapping[int, str] | None = None, **size: str
    ) -> tuple[int, dict[str, Any]]:
        """PATCH requests and limits alike, and the cells that change; code and answer."""
        vm: dict[str, Any] = {"resources": {"requests": size, "limits": size}}
        if cells:
            named = [{"id": number, "memory": memory} for number, memory in cells.items()]
            vm["numa"] = {"cells": named}
        return self.up.patch_resize(self.name, {"spec": {"virtualMachine": vm}})

    def resize(self, cells: Mapping[int, str] | None = None, **size: str) -> None:
        code, answer = self.ask(cells, **size)
        assert code == 200, answer
        self.wait_resized()

    def says(self, *words: str, seconds: float = RESIZED_SECONDS) -> str:
        """Wait until its newest resize says all of that; the whole sentence."""

        def said() -> str:
            message = str(self.state.get("message", ""))
            return message if all(word in message for word in words) else ""

        return str(self.until(said, f"it says {words}, not: {self.state}", seconds))

    def wait_resized(self) -> None:
        def done() -> bool:
            # The answer to the PATCH was given: the state is that of the newest request.
            return self.state.get("phase", "None") in ("Done", "None")

        self.until(done, f"the resize of {self.name} is done", RESIZED_SECONDS)

    def delete(self) -> None:
        self.up.request("DELETE", self.path)
        gone = lambda: self.up.request("GET", self.path)[0] == 404  # noqa: E731
        self.until(gone, f"{self.name} is gone")

    def restart_agent(self, **environment: str) -> None:
        """kill -9, unless it has died already, and start again. The control plane of before ends
        a moment after its parent, and must not be taken for the new one."""
        if self.up.process is not None:
            self.up.kill()
        self.until(lambda: not self.pod, "the control plane of before is gone")
        self.up.start(environment=environment)

    def kill_agent_at(self, step: str, *, cpu: str, memory: str) -> None:
        """Ask, and let the agent die before that step; the next one is started, and ends it."""
        with tempfile.TemporaryDirectory() as folder:
            arm = Path(folder, "arm")
            crash = {"LIVESIZE_CRASH_AT": f"resize/{step}/before", "LIVESIZE_CRASH_ARM": str(arm)}
            self.restart_agent(**crash)
            arm.write_text("1")
            assert self.ask(cpu=cpu, memory=memory)[0] == 200
            assert self.up.process is not None
            self.up.process.wait(timeout=60)
            self.up.process = None
        self.restart_agent()
        self.wait_resized()

    # Asking the guest and the domain.

    @contextlib.contextmanager
    def domain(self) -> Iterator[Any]:
        """libvirt's own object, on a connection of our own."""
        connection = libvirt.open(f"qemu:///system?socket={self.libvirt / 'run' / 'libvirt-sock'}")
        try:
            yield connection.lookupByName(domain_name(vm_uid_of(self.pod)))
        finally:
            connection.close()

    def xml(self, flags: int = 0) -> ET.Element:
        with self.domain() as domain:
            return ET.fromstring(domain.XMLDesc(flags))

    def reset(self) -> None:
        with self.domain() as domain:
            domain.reset()

    def reboot(self) -> None:
        """By the guest itself."""
        self._agent("guest-exec", path="/bin/sh", arg=["-c", "shutdown -r now"])

    def destroy(self) -> None:
        """By libvirt, behind the agent's back."""
        with self.domain() as domain:
            domain.destroy()

    def suspend(self) -> None:
        """Behind the agent's back: the guest does nothing any more, until ``resume``."""
        with self.domain() as domain:
            domain.suspend()

    def resume(self) -> None:
        with self.domain() as domain:
            domain.resume()

    @contextlib.contextmanager
    def suspended_while_resizing(self, **size: str) -> Iterator[None]:
        """Ask, and suspend it as soon as the change is noted: what comes then it cannot do."""

        def suspend() -> None:
            with self.domain() as domain:
                began = time.monotonic()
                while is_clear(note_in(ET.fromstring(domain.XMLDesc()))):
                    assert time.monotonic() - began < RESIZED_SECONDS, "nothing is noted"
                domain.suspend()

        with ThreadPoolExecutor(1) as watching:
            suspending = watching.submit(suspend)
            code, answer = self.ask(**size)
            assert code == 200, answer
            suspending.result()
        try:
            yield
        finally:
            self.resume()

    def persist_vcpus(self, count: int) -> None:
        """Behind the agent's back."""
        with self.domain() as domain:
            domain.setVcpusFlags(count, libvirt.VIR_DOMAIN_AFFECT_CONFIG)

    def request_memory(self, device_mib: int, *, persistent: bool = False) -> None:
        """Behind the agent's back, of its first device."""
        read = libvirt.VIR_DOMAIN_XML_INACTIVE if persistent else 0
        write = libvirt.VIR_DOMAIN_AFFECT_CONFIG if persistent else libvirt.VIR_DOMAIN_AFFECT_LIVE
        with self.domain() as domain:
            device = ET.fromstring(domain.XMLDesc(read)).find("devices/memory")
            assert device is not None
            requested = device.find("target/requested")
            assert requested is not None
            requested.text = str(device_mib * 1024)
            domain.updateDeviceFlags(ET.tostring(device).decode(), write)

    def write_note(self, memory_bytes: int) -> None:
        """Behind the agent's back: as if memory were on its way to that size."""
        note = render_note(VmNote(memory_bytes))
        flags = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        with self.domain() as domain:
            domain.setMetadata(kind, note, NOTE_KEY, NOTE_URI, flags)

    def detach_memory(self) -> str:
        """Behind the agent's back: its memory device, of which the guest has nothing; what to give
        to ``attach_memory``."""
        with self.domain() as domain:
            device = ET.fromstring(domain.XMLDesc()).find("devices/memory")
            assert device is not None
            alias = device.find("alias")
            assert alias is not None
            domain.detachDeviceAlias(str(alias.get("name")), libvirt.VIR_DOMAIN_AFFECT_LIVE)
        gone = lambda: self.xml().find("devices/memory") is None  # noqa: E731
        self.until(gone, "the memory device is gone")
        return ET.tostring(device).decode()

    def attach_memory(self, device: str) -> None:
        with self.domain() as domain:
            domain.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def guest_file(self, path: str) -> str:
        """A file of the guest, read by its agent."""
        handle = self._agent("guest-file-open", path=path)
        answer = self._agent("guest-file-read", handle=handle, count=65536)
        self._agent("guest-file-close", handle=handle)
        return base64.b64decode(answer["buf-b64"]).decode()

    def boot_id(self) -> str:
        return self.guest_file("/proc/sys/kernel/random/boot_id").strip()

    def memory_by_node(self, nodes: int) -> list[int]:
        """The guest's own total of each of its NUMA nodes."""
        found = []
        for node in range(nodes):
            lines = self.guest_file(f"/sys/devices/system/node/node{node}/meminfo").splitlines()
            found += [int(line.split()[3]) * 1024 for line in lines if " MemTotal:" in line]
        return found

    def vcpus_by_socket(self) -> dict[int, int]:
        """Of those the guest uses, as the guest numbers its sockets."""
        found: dict[int, int] = {}
        for one in self._agent("guest-get-vcpus"):
            if one["online"]:
                path = f"/sys/devices/system/cpu/cpu{one['logical-id']}/topology"
                socket = int(self.guest_file(f"{path}/physical_package_id"))
                found[socket] = found.get(socket, 0) + 1
        return found

    def memory_total(self) -> int:
        lines = self.guest_file("/proc/meminfo").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))

    def online_vcpus(self) -> int:
        return sum(one["online"] for one in self._agent("guest-get-vcpus"))

    def plugged_vcpus(self) -> int:
        """Under emulation what was plugged once stays so."""
        return len(self._agent("guest-get-vcpus"))

    def plugged_bytes(self) -> int:
        """By QEMU itself: libvirt hears of it at most once a second."""
        with self.domain() as domain:
            live, devices = ET.fromstring(domain.XMLDesc()), _monitor(domain, "memory-devices")
            return _base(domain, live, devices) + plugged_in(devices)

    def plugged_by_node(self) -> dict[int, int]:
        """What QEMU has of devices."""
        with self.domain() as domain:
            return plugged_in_by_node(_monitor(domain, "memory-devices"))

    def monitor(self, command: str, **arguments: Any) -> None:
        """Tell QEMU itself, behind the back of libvirt too."""
        told = json.dumps({"execute": command, "arguments": arguments})
        with self.domain() as domain:
            answer = json.loads(libvirt_qemu.qemuMonitorCommand(domain, told, 0))
        assert "error" not in answer, answer

    def devices(self, *, persistent: bool = False) -> list[Device]:
        return devices_in(self.xml(libvirt.VIR_DOMAIN_XML_INACTIVE if persistent else 0))

    def dimms(self, *, persistent: bool = False) -> list[int]:
        """MiB of each, the largest first."""
        return dimms_in(self.xml(libvirt.VIR_DOMAIN_XML_INACTIVE if persistent else 0))

    def beside_the_guest(self) -> int:
        """Bytes in the VM's group that are neither its guest's memory nor a cache of files."""
        guest = _resident_bytes(int(self.status["pid"]), at_least_bytes=500 * MIB)
        return self.group.memory_usage_bytes() - self.group.file_cache_bytes() - guest

    def run_in_guest(self, script: str) -> None:
        """Until it has ended, well."""
        begun = self._agent("guest-exec", path="/bin/sh", arg=["-c", script])
        ask = lambda: self._agent("guest-exec-status", pid=begun["pid"])  # noqa: E731
        ended = self.until(lambda: (told := ask())["exited"] and told, f"{script} has ended", 60)
        assert ended["exitcode"] == 0, ended

    def sizes(self, *, heard: bool = True) -> Sizes:
        """Not ``heard``: of a guest that hangs, whose vCPUs are then none."""
        with self.domain() as domain:
            live = ET.fromstring(domain.XMLDesc())
            persistent = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
            devices = _monitor(domain, "memory-devices")
            base = _base(domain, live, devices)
        group, pod = self.group, self.group.pod()
        return Sizes(
            online=self.online_vcpus() if heard else 0,
            persistent=vcpus_of(persistent),
            requested=requested_bytes(live, base),
            plugged=base + plugged_in(devices),
            persistent_memory=persistent_bytes(persistent),
            note=note_in(live),
            persistent_note=note_in(persistent),
            pod_quota_us=pod.cpu_quota_us(),
            vm_quota_us=group.cpu_quota_us(),
            pod_limit=pod.memory_limit_bytes(),
            vm_limit=group.memory_limit_bytes(),
        )

    def check(self, vcpus: int, memory_mib: int) -> None:
        """Groups, domain, persistent definition, guest and status agree on the size."""
        found, limit = self.sizes(), memory_mib * MIB + self.overhead
        assert (found.online, found.persistent) == (vcpus, vcpus), found
        memory = {found.requested, found.plugged, found.persistent_memory}
        assert memory == {memory_mib * MIB}, found
        assert (found.pod_limit, found.vm_limit) == (limit, limit), found
        quota = 100_000 * vcpus
        assert (found.pod_quota_us, found.vm_quota_us) == (quota, quota), found
        assert is_clear(found.note), f"a note is left: {found.note}"
        assert is_clear(found.persistent_note), f"a note is left: {found.persistent_note}"
        live, persistent = self.devices(), self.devices(persistent=True)
        assert live == persistent, "each device by its alias, size and node"
        pod = self.pod
        assert (
            pod["status"]["virtualMachineStatus"]["resources"]
            == (pod["spec"]["virtualMachine"]["resources"])
        )

    def kill_qemu(self) -> None:
        os.kill(int(self.status["pid"]), signal.SIGKILL)

    def libvirtd_pid(self) -> int:
        return int((self.libvirt / "run" / "libvirtd.pid").read_text())

    def _agent(self, command: str, **arguments: Any) -> Any:
        asked = json.dumps({"execute": command, "arguments": arguments})
        with self.domain() as domain:
            answer = libvirt_qemu.qemuAgentCommand(domain, asked, AGENT_SECONDS, 0)
        return json.loads(answer)["return"]


def manifest(name: str, cpu: str, memory: str, /, **vm: Any) -> dict[str, Any]:
    size = {"cpu": cpu, "memory": memory}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "virtualMachine": {
                "kernel": {"image": KERNEL_NAME, "initrd": INITRD_NAME},
                "cpu": {"max": "6"},
                "memory": {"max": "2Gi", "boot": "512Mi"},
                "resources": {"requests": size, "limits": size},
                **vm,
            },
        },
    }


def cells(*memory: str) -> dict[str, Any]:
    """spec.virtualMachine.numa with that in each, by id."""
    return {"cells": [{"id": number, "memory": text} for number, text in enumerate(memory)]}


def install_images(directory: Path) -> None:
    install_guest(build_guest(default_cache_dir()), DataDirectory(directory).vm_images)


@contextlib.contextmanager
def running_up_for_vms(directory: Path, *options: str) -> Iterator[Up]:
    """A `livesize up` that has the images of our guest."""
    up = Up(directory, allocatable="cpu=16,memory=8Gi")
    install_images(directory)
    claim(f"{up.node}-vms", directory)
    up.options = options
    try:
        up.start()
        yield up
    finally:
        up.end()


@contextlib.contextmanager
def running_vm(
    directory: Path, cpu: str, memory: str, /, *, options: Sequence[str] = (), **vm: Any
) -> Iterator[Vm]:
    """A `livesize up` with one VM whose guest has booted."""
    with running_up_for_vms(directory, *options) as up:
        made = Vm(up)
        made.create(cpu, memory, **vm)
        yield made


def _resident_bytes(pid: int, at_least_bytes: int) -> int:
    """Of the process's mappings of at least that size; of QEMU's, these are its guest's memory."""
    resident = size = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Size":
            size = int(rest.split()[0]) * 1024
        elif name == "Rss" and size >= at_least_bytes:
            resident += int(rest.split()[0]) * 1024
    return resident


def _monitor(domain: Any, what: str) -> Any:
    query = json.dumps({"execute": f"query-{what}"})
    return json.loads(libvirt_qemu.qemuMonitorCommand(domain, query, 0))["return"]


def _base(domain: Any, live: ET.Element, devices: list[Any]) -> int:
    balloon = _monitor(domain, "balloon") if has_balloon(live) else None
    return base_bytes(live, balloon, devices)
