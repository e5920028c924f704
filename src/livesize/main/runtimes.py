"""Picks what runs containers and virtual machines; the only place that does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import click
import msgspec

from livesize.api.quantity import QuantityError, memory_bytes
from livesize.cli.doctor.containerd_checks import ContainerdTools
from livesize.machinery.clock import Clock
from livesize.machinery.steps import CrashPoints
from livesize.main.layout import DataDirectory
from livesize.runtime.events import EventFeed
from livesize.runtime.interface import Runtime
from livesize.runtime.streams import LogLimits
from livesize.runtime.vm import VmRuntime
from livesize.runtime.volumes.interface import VolumeStore

LEAST_LOG_BYTES, LEAST_LOG_FILES = 16 * 1024, 2
DEFAULT_LOGS = LogLimits()


class RuntimeChoice(msgspec.Struct, frozen=True):
    """``endpoint``: the socket of a containerd that is not ours; empty: a private one."""

    kind: str = "process"
    endpoint: str = ""
    logs: LogLimits = LogLimits()


def parse_log_limits(size: str, files: str) -> LogLimits:
    try:
        limits = LogLimits(memory_bytes(size), int(files))
    except (QuantityError, ValueError):
        limits = LogLimits(0, 0)
    if limits.max_bytes < LEAST_LOG_BYTES or limits.max_files < LEAST_LOG_FILES:
        raise click.BadParameter(
            f"{size!r} and {files!r} are not at least {LEAST_LOG_BYTES // 1024}Ki and"
            f" {LEAST_LOG_FILES} files",
            param_hint="--container-log-max-size and --container-log-max-files",
        )
    return limits


def check_runtime(kind: str, endpoint: str, logs: LogLimits = DEFAULT_LOGS) -> RuntimeChoice:
    """Wrong settings end in one sentence, before anything starts."""
    if endpoint and kind != "containerd":
        raise click.BadParameter(
            f"it is for --runtime containerd, and this is --runtime {kind}",
            param_hint="--runtime-endpoint",
        )
    if endpoint and not Path(endpoint).is_socket():
        raise click.BadParameter(
            f"{endpoint} is not the socket of a containerd, for instance"
            " /run/containerd/containerd.sock",
            param_hint="--runtime-endpoint",
        )
    if kind == "containerd" and importlib.util.find_spec("grpc") is None:
        raise click.ClickException(
            "--runtime containerd needs the extra: pip install 'livesize[containerd]'"
        )
    if kind != "fake" and os.geteuid() != 0:
        raise click.ClickException(
            f"--runtime {kind} makes cgroups and namespaces and needs root:"
            " run it with sudo, or try the API with --runtime fake"
        )
    return RuntimeChoice(kind, endpoint, logs)


def observe_containerd() -> ContainerdTools:
    """What a private containerd would find here."""
    from livesize.runtime.containerd.daemon import CniFolders, find_programs

    programs = find_programs()
    version = ""
    if programs.containerd:
        asked = subprocess.run(
            [programs.containerd, "--version"], capture_output=True, text=True, check=False
        )
        version = asked.stdout
    configuration = Path(CniFolders().configuration)
    return ContainerdTools(
        missing=tuple(programs.missing()),
        version=version,
        has_grpc=importlib.util.find_spec("grpc") is not None,
        network=configuration.is_dir() and any(configuration.iterdir()),
    )


def accept_delay_seconds(choice: RuntimeChoice) -> float:
    """A resize of containers is applied by then, and told in one commit instead of two. Writing
    files takes less than a millisecond; containerd starts a program for each call."""
    return 0.1 if choice.kind == "containerd" else 0.005


def make_runtime(
    choice: RuntimeChoice, directory: DataDirectory, node_name: str, clock: Clock
) -> VmRuntime:
    """The driver of virtual machines wakes with the first of them."""
    if choice.kind == "fake":
        from livesize.runtime.fake import FakeRuntime

        return FakeRuntime(clock=clock)
    from livesize.runtime.combined import CombinedRuntime
    from livesize.runtime.libvirt.runtime import LibvirtRuntime, LibvirtSettings

    feed, root = EventFeed(), f"livesize/{node_name}"
    containers = _make_containers(choice, directory, root, clock, feed)
    settings = LibvirtSettings(logs=choice.logs)
    machines = LibvirtRuntime(
        directory.vms, directory.vm_images, f"{root}-vms", clock, feed=feed, settings=settings
    )
    return CombinedRuntime(containers, machines, feed)


def make_volumes(choice: RuntimeChoice, directory: DataDirectory) -> VolumeStore:
    from livesize.runtime.volumes.folders import FolderVolumes

    if choice.kind == "fake":
        from livesize.runtime.volumes.fake_mounts import FakeMounts

        return FolderVolumes(directory.volumes, FakeMounts(), directory.claims)
    from livesize.runtime.volumes.mounts import KernelMounts

    return FolderVolumes(directory.volumes, KernelMounts(), directory.claims)


def _make_containers(
    choice: RuntimeChoice, directory: DataDirectory, root: str, clock: Clock, feed: EventFeed
) -> Runtime:
    if choice.kind == "containerd":
        from livesize.runtime.containerd.runtime import ContainerdRuntime, ContainerdSettings

        return ContainerdRuntime(
            directory.containerd,
            cgroup_root=root,
            clock=clock,
            images=directory.runtime / "images",
            settings=ContainerdSettings(
                endpoint=Path(choice.endpoint).absolute() if choice.endpoint else None,
                points=CrashPoints.from_environment(),
                logs=choice.logs,
            ),
            feed=feed,
        )
    from livesize.runtime.process.runtime import ProcessRuntime, ProcessSettings

    settings = ProcessSettings(logs=choice.logs)
    return ProcessRuntime(
        directory.runtime, cgroup_root=root, clock=clock, settings=settings, feed=feed
    )
