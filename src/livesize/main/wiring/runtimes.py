"""Picks what runs containers and virtual machines; the only place that does."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from livesize.api.quantity import QuantityError, memory_bytes
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.data_directory import DataDirectory
from livesize.machinery.steps import CrashPoints
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.events import EventFeed
from livesize.runtime.interface import Runtime
from livesize.runtime.ownership import NodeIdentity
from livesize.runtime.streams import LogLimits
from livesize.runtime.vm import VmRuntime
from livesize.runtime.volumes.interface import VolumeStore

LEAST_LOG_BYTES, LEAST_LOG_FILES = 16 * 1024, 2
DEFAULT_LOGS = LogLimits()


class RuntimeChoice(msgspec.Struct, frozen=True):
    """``endpoint``: the socket of a containerd that is not ours; empty: a private one.
    ``rootless``: containers of an ordinary user."""

    kind: str = "process"
    endpoint: str = ""
    cgroup_driver: str = "auto"
    logs: LogLimits = LogLimits()
    rootless: bool = False


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


def check_runtime(
    kind: str, endpoint: str, cgroup_driver: str = "auto", logs: LogLimits = DEFAULT_LOGS
) -> RuntimeChoice:
    """Wrong settings end in one sentence, before anything starts."""
    for option, is_given in (
        ("--runtime-endpoint", bool(endpoint)),
        ("--cgroup-driver", cgroup_driver != "auto"),
    ):
        if is_given and kind != "containerd":
            raise click.BadParameter(
                f"it is for --runtime containerd, and this is --runtime {kind}",
                param_hint=option,
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
    if kind == "containerd" and os.geteuid() != 0:
        raise click.ClickException(
            "--runtime containerd needs root: run it with sudo, or choose --runtime process, which"
            " an ordinary user may run on cgroup v2 with systemd"
        )
    rootless = kind == "process" and os.geteuid() != 0
    return RuntimeChoice(kind, endpoint, cgroup_driver, logs, rootless)


@contextlib.contextmanager
def rootless(choice: RuntimeChoice, directory: DataDirectory) -> Iterator[None]:
    """Where an ordinary user runs containers: be root of a user namespace from here on, which goes
    when no pod is left in it. What is missing is said in one sentence, before anything is made."""
    if not choice.rootless:
        yield
        return
    from livesize.runtime.process.records import ProcessRecords
    from livesize.runtime.rootless.delegation import find_delegation, require_delegation
    from livesize.runtime.rootless.namespaces import end_namespaces, enter_namespaces

    require_delegation(find_delegation())
    enter_namespaces(directory.agent)
    try:
        yield
    finally:
        if not ProcessRecords(directory.runtime).pod_uids():
            end_namespaces(directory.agent)


def make_runtime(
    choice: RuntimeChoice, directory: DataDirectory, identity: NodeIdentity, context: Context
) -> VmRuntime:
    """The driver of virtual machines wakes with the first of them."""
    if choice.kind == "fake":
        from livesize.runtime.fake import FakeRuntime

        return FakeRuntime(context=context)
    from livesize.runtime.combined import CombinedRuntime
    from livesize.runtime.libvirt.runtime import LibvirtRuntime, LibvirtSettings

    feed = EventFeed()
    containers = _make_containers(choice, directory, identity, context, feed)
    why_not = "virtual machines need root: run livesize with sudo" if choice.rootless else ""
    machines = LibvirtRuntime(
        directory.vms,
        directory.vm_images,
        identity.vm_root,
        context,
        feed=feed,
        settings=LibvirtSettings(
            logs=choice.logs,
            cgroups=_cgroups(choice, context.clock),
            node_uid=identity.uid,
            why_not=why_not,
        ),
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
    choice: RuntimeChoice,
    directory: DataDirectory,
    identity: NodeIdentity,
    context: Context,
    feed: EventFeed,
) -> Runtime:
    root = identity.container_root
    if choice.kind == "containerd":
        from livesize.runtime.containerd.daemon import GroupDriver
        from livesize.runtime.containerd.runtime import ContainerdRuntime, ContainerdSettings

        driver = choice.cgroup_driver
        return ContainerdRuntime(
            directory.containerd,
            cgroup_root=root,
            context=context,
            images=directory.runtime / "images",
            settings=ContainerdSettings(
                endpoint=Path(choice.endpoint).absolute() if choice.endpoint else None,
                node_uid=identity.uid,
                group_driver=None if driver == "auto" else GroupDriver(driver),
                points=CrashPoints.from_environment(),
                logs=choice.logs,
            ),
            feed=feed,
        )
    from livesize.runtime.process.runtime import ProcessRuntime, ProcessSettings

    return ProcessRuntime(
        directory.runtime,
        cgroup_root=root,
        context=context,
        cgroups=_cgroups(choice, context.clock),
        settings=ProcessSettings(logs=choice.logs, rootless=choice.rootless),
        feed=feed,
    )


def open_groups(choice: RuntimeChoice, clock: Clock) -> CgroupDriver:
    """Those in which the pods of this choice stand."""
    from livesize.runtime.cgroups.detect import open_cgroups

    return _cgroups(choice, clock) or open_cgroups(clock)


def _cgroups(choice: RuntimeChoice, clock: Clock) -> CgroupDriver | None:
    """None: the whole machine's."""
    if not choice.rootless:
        return None
    from livesize.runtime.cgroups.v2 import CgroupsV2
    from livesize.runtime.rootless.delegation import find_delegation, require_delegation

    return CgroupsV2(require_delegation(find_delegation()), clock)
