"""Makes this process the one owner of its node on this machine, or says who owns it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from livesize.machinery.clock import SystemClock
from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.runtimes import RuntimeChoice, open_groups
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.ownership import NodeIdentity, NodeLocks, NodeOwner, keep_identity
from livesize.runtime.systemd.slices import slice_name, slice_path

MACHINE_FOLDER = Path("/run/livesize/nodes")


@contextlib.contextmanager
def own_node(directory: DataDirectory, node: str, runtime: RuntimeChoice) -> Iterator[NodeIdentity]:
    """The fake runtime leaves nothing on the machine that could be taken for another's."""
    identity = keep_identity(directory.node, node)
    if runtime.kind == "fake":
        yield identity
        return
    owner = NodeOwner(node, identity, str(directory.root), os.getpid(), runtime.endpoint)
    groups = open_groups(runtime, SystemClock())
    with node_locks(rootless=runtime.rootless).held(owner, lambda one: has_pods(groups, one)):
        yield identity


def node_locks(*, rootless: bool) -> NodeLocks:
    """An ordinary user's nodes are apart from root's: their groups are the user's own."""
    if not rootless:
        return NodeLocks(MACHINE_FOLDER)
    folder = os.environ.get("XDG_RUNTIME_DIR") or str(Path.home() / ".cache")
    return NodeLocks(Path(folder, "livesize/nodes"))


def root_groups(identity: NodeIdentity) -> tuple[str, ...]:
    """Where groups of its pods can be: our own, those of VMs, and slices of systemd."""
    slices = slice_path(slice_name(*identity.container_root.split("/")))
    return identity.container_root, identity.vm_root, slices


def has_pods(groups: CgroupDriver, owner: NodeOwner) -> bool:
    return any(groups.children(root) for root in root_groups(owner.identity))
