"""Removes what a dead data directory left on this machine; a living one is never touched."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from livesize.machinery.clock import SystemClock
from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.folders import exclusive
from livesize.main.wiring.ownership import node_locks, root_groups
from livesize.runtime.abandoned import (
    Abandoned,
    NodePaths,
    ProcessLeft,
    observe_abandoned,
    remove_abandoned,
)
from livesize.runtime.cgroups.detect import hierarchy_mounts
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.ownership import NodeLocks, NodeOwner, read_identity

_SHOWN = 20


class NodeLeftovers(msgspec.Struct, frozen=True):
    """``sandboxes``: ids, in a containerd that is not the node's own."""

    owner: NodeOwner
    machine: Abandoned
    sandboxes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.machine or self.sandboxes)


def clean(data_dir: Path | None, node: str, *, remove: bool) -> str:
    """What was found, or removed, for a person to read."""
    locks = node_locks(rootless=os.geteuid() != 0)
    with _dead_owner(locks, data_dir, node) as owner:
        left = _observe(owner)
        if left and remove:
            _remove(left)
        if owner.node and (remove or not left):
            locks.forget(owner.node)
    return format_left(left, removed=remove)


def format_left(left: NodeLeftovers, *, removed: bool) -> str:
    owner = left.owner
    who = f"node {owner.node}" if owner.node else "the node"
    if not left:
        return f"Nothing of {who} (--data-dir {owner.directory}) is left on this machine."
    lines = [
        *_lines("control group", _pod_groups(left)),
        *_lines("process", [f"{one.pid} {one.command}" for one in _shown(left.machine.processes)]),
        *_lines("mount", left.machine.mounts),
        *_lines("sandbox", left.sandboxes),
    ]
    if removed:
        head = f"Removed what {who} (--data-dir {owner.directory}) had left on this machine:"
        return "\n".join([head, *lines])
    head = f"{who.capitalize()} (--data-dir {owner.directory}) does not run, and has left here:"
    return "\n".join([head, *lines, "Nothing was removed. Remove all of it with --yes."])


def _pod_groups(left: NodeLeftovers) -> list[str]:
    """Once, though each hierarchy has it."""
    roots = root_groups(left.owner.identity)
    found = {
        f"{root}{group.partition(f'/{root}')[2]}"
        for group in left.machine.groups
        for root in roots
        if f"/{root}/" in f"{group}/"
    }
    return sorted(found)


def _lines(word: str, entries: list[str] | tuple[str, ...]) -> list[str]:
    shown = [f"  {word:<14} {entry}" for entry in entries[:_SHOWN]]
    more = len(entries) - _SHOWN
    return [*shown, f"  {word:<14} and {more} more"] if more > 0 else shown


def _shown(processes: tuple[ProcessLeft, ...]) -> list[ProcessLeft]:
    return sorted(processes, key=lambda one: one.pid)


@contextlib.contextmanager
def _dead_owner(locks: NodeLocks, data_dir: Path | None, node: str) -> Iterator[NodeOwner]:
    """Held while it is cleaned, so that nobody starts it meanwhile."""
    if data_dir is not None:
        owner = _owner_of(locks, DataDirectory(data_dir.absolute()))
        directory = DataDirectory(Path(owner.directory))
        with contextlib.ExitStack() as stack:
            if directory.agent.is_dir():
                stack.enter_context(exclusive(directory, directory.agent_lock))
            if owner.node:
                stack.enter_context(locks.dead(owner.node))
            yield owner
        return
    with locks.dead(node) as found:
        if found is None:
            raise click.ClickException(
                f"no data directory has run node {node} on this machine since it was started;"
                " where you know the directory, name it with --data-dir"
            )
        yield found


def _owner_of(locks: NodeLocks, directory: DataDirectory) -> NodeOwner:
    """By the uid it keeps; of one that was removed, by the note of who ran a node."""
    identity, owners = read_identity(directory.node), locks.owners()
    for owner in owners:
        same = owner.directory == str(directory.root) if identity is None else False
        if same or (identity is not None and owner.identity.uid == identity.uid):
            return owner
    if identity is None:
        raise click.ClickException(
            f"{directory.root} has run no node on this machine: there is no {directory.node}, and"
            " no note of it"
        )
    return NodeOwner("", identity, str(directory.root), 0)


def _observe(owner: NodeOwner) -> NodeLeftovers:
    sandboxes = asyncio.run(_sandboxes(owner, remove=False)) if owner.endpoint else ()
    return NodeLeftovers(owner, observe_abandoned(_paths(owner)), sandboxes)


def _remove(left: NodeLeftovers) -> None:
    """In a containerd that others use, its records go last: nothing of the pods runs by then."""
    owner = left.owner
    if os.geteuid() != 0:
        from livesize.runtime.rootless.namespaces import end_namespaces

        end_namespaces(DataDirectory(Path(owner.directory)).agent)
    remove_abandoned(_paths(owner))
    if left.sandboxes:
        asyncio.run(_sandboxes(owner, remove=True))


def _paths(owner: NodeOwner) -> NodePaths:
    from livesize.runtime.containerd.daemon import socket_of

    directory = DataDirectory(Path(owner.directory))
    containerd = directory.containerd / "containerd"
    socket = socket_of(containerd)
    return NodePaths(
        hierarchies=_hierarchies(),
        roots=root_groups(owner.identity),
        words=(str(containerd / "config.toml"), str(socket), str(directory.vms / "libvirt")),
        folders=(str(directory.agent), str(socket.parent)),
    )


def _hierarchies() -> tuple[str, ...]:
    if os.geteuid() == 0:
        return hierarchy_mounts(Path("/proc/self/mountinfo").read_text())
    from livesize.runtime.rootless.delegation import find_delegation, require_delegation

    return (require_delegation(find_delegation()),)


async def _sandboxes(owner: NodeOwner, *, remove: bool) -> tuple[str, ...]:
    """Those labelled with the node's uid, in a containerd that is not its own."""
    from livesize.runtime.containerd.cri_client import CriClient
    from livesize.runtime.containerd.messages import PodSandboxFilter
    from livesize.runtime.containerd.requests import NODE_LABEL

    client = CriClient(Path(owner.endpoint), SystemClock())
    try:
        ours = PodSandboxFilter(label_selector={NODE_LABEL: owner.identity.uid})
        answer = await client.call("ListPodSandbox", filter=ours)
        found = tuple(str(item.id) for item in answer.items)
        for one in found if remove else ():
            await client.call("StopPodSandbox", pod_sandbox_id=one)
            await client.call("RemovePodSandbox", pod_sandbox_id=one)
    except RuntimeCallError as failure:
        raise RuntimeCallError(
            f"the containerd at {owner.endpoint}, which ran pods of this node, cannot be asked:"
            f" {failure}"
        ) from failure
    finally:
        await client.close()
    return found
