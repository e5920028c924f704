"""The checkers. They stand outside the system: they read the API with a client that no fault
touches, the store's changes, the fake machines, and what users were told.

- ``NoOvercommit``: at every write of a machine, what its pods may use fits the node;
- ``NoNeedlessRestart``: a container keeps its process, unless its pod asks for restarts;
- ``NoLostWrite``: what a component was told has been written is in the store, and stays;
- ``converged``: after the faults, machines and API say what users were told last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from livesize.api.accounting import footprint, requests_of
from livesize.api.conditions import is_true
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.api.reasons import ConditionType
from livesize.api.resize_phase import ResizePhase
from livesize.api.resize_state import is_terminal, phase_of
from livesize.api.resources import VM_NAME, Amounts, add, parse_amounts, total
from livesize.apiserver.keys import ROOT, key_of
from livesize.client.interface import Client
from livesize.machinery.clock import Clock
from livesize.runtime.fake import FakeMachine
from livesize.runtime.interface import ContainerGroup, ContainerPhase
from livesize.sim.network import Acknowledgement
from livesize.sim.node import SimNode
from livesize.sim.workload import BURSTING_FACTOR, NAMESPACE, UserPod
from livesize.store.interface import ChangeKind, Store

_QUOTA_US_OF_MILLI = 100
_CONVERGENCE_SECONDS = 5.0
_RECENT_REVISIONS = 200_000
_TURNED_AWAY = frozenset({"OutOfcpu", "OutOfmemory"})


class CheckFailedError(Exception):
    """A promise of the system was broken. ``check`` names which."""

    def __init__(self, check: str, what: str) -> None:
        super().__init__(f"{check}: {what}")
        self.check = check
        self.what = what


class NoOvercommit:
    """Called after each change of a machine."""

    name = "no overcommit"

    def __init__(self, allocatable: Amounts) -> None:
        self._allocatable = allocatable
        self.looks = 0

    def look(self, node: str, machine: FakeMachine) -> None:
        self.looks += 1
        used = total(held_by(machine, uid) for uid in machine.pods)
        for what, amount, bound in (
            ("milli-CPUs", used.cpu_milli or 0, self._allocatable.cpu_milli or 0),
            ("bytes of memory", used.memory_bytes or 0, self._allocatable.memory_bytes or 0),
        ):
            if amount > bound:
                raise CheckFailedError(
                    self.name, f"{node}: its pods may use {amount} {what}, and it has {bound}"
                )


def held_by(machine: FakeMachine, uid: str) -> Amounts:
    """What the machine keeps for a pod: its limits, or for those that burst, half of them."""
    cpu_milli = memory_bytes = 0
    vm = machine.vms.get(uid)
    if vm is not None:
        return Amounts(vm.online_vcpus * 1000, vm.plugged_bytes) if vm.running else Amounts(0, 0)
    for name in machine.pods[uid].containers:
        group = machine.groups.get(ContainerGroup(uid, name))
        if group is None or name == VM_NAME:
            continue
        factor = BURSTING_FACTOR if name == "bursting" else 1
        cpu_milli += (group.limits.cpu_quota_us or 0) // _QUOTA_US_OF_MILLI // factor
        memory_bytes += (group.limits.memory_limit_bytes or 0) // factor
    return Amounts(cpu_milli, memory_bytes)


class NoNeedlessRestart:
    """Called now and then, with every machine."""

    name = "no needless restart"

    def __init__(self) -> None:
        self._first_pids: dict[tuple[str, str], int] = {}

    def look(self, node: str, machine: FakeMachine, users: Mapping[str, UserPod]) -> None:
        for uid, pod in machine.pods.items():
            user = users.get(pod.config.name)
            for name, view in pod.containers.items():
                allowed = 0
                if name == "restarting" and user is not None and user.uid == uid:
                    allowed = user.memory_requests
                elif name == "restarting":
                    continue
                if view.attempt > allowed:
                    raise CheckFailedError(
                        self.name,
                        f"{node}: container {name} of pod {pod.config.name} was started"
                        f" {view.attempt + 1} times",
                    )
                first = self._first_pids.setdefault((uid, name), view.pid)
                if not allowed and first != view.pid:
                    raise CheckFailedError(
                        self.name,
                        f"{node}: container {name} of pod {pod.config.name} has another process",
                    )


class NoLostWrite:
    """``follow`` reads the store's changes; ``acknowledged`` takes what components were told."""

    name = "no lost write"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: dict[int, tuple[str, ...]] = {}  # by revision, the newest
        self._latest: dict[str, int] = {}
        self._deleted: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self.writes = 0

    async def follow(self) -> None:
        async for batch in self._store.watch(ROOT, after_revision=0):
            for change in batch:
                key = change.entry.key
                self._keys[change.revision] = (*self._keys.get(change.revision, ()), key)
                self._latest[key] = change.revision
                if change.kind is ChangeKind.DELETE:
                    self._deleted[key] = change.revision
            while len(self._keys) > _RECENT_REVISIONS:
                del self._keys[next(iter(self._keys))]

    def acknowledged(self, write: Acknowledgement) -> None:
        if write.is_delete or not write.version:
            return
        self.writes += 1
        key, revision = key_of(write.resource, write.namespace, write.name), int(write.version)
        if self._latest.get(key) != revision and key not in self._keys.get(revision, ()):
            raise CheckFailedError(
                self.name, f"{key} at {revision} was acknowledged and is not in the store"
            )
        self._told[key] = max(self._told.get(key, 0), revision)

    async def look(self) -> None:
        """At the end: nothing has gone back."""
        listing = await self._store.list(ROOT)
        found = {entry.key: entry.mod_revision for entry in listing.entries}
        for key, revision in self._told.items():
            if found.get(key, 0) < revision and self._deleted.get(key, 0) < revision:
                raise CheckFailedError(
                    self.name,
                    f"{key} was acknowledged at {revision} and is now at {found.get(key, 'none')}",
                )


async def differences(
    client: Client, nodes: Iterable[SimNode], users: Mapping[str, UserPod]
) -> list[str]:
    """What machines or API say other than users were told; empty when all has converged."""
    machines = {node.name: node.machine for node in nodes}
    pods = {name_of(pod): pod for pod in (await client.list(PODS, Selection(NAMESPACE))).items}
    listed = (await client.list(NODES)).items
    allocatable = {
        name_of(node): parse_amounts(lookup(node, "status", "allocatable")) for node in listed
    }
    found = [
        f"node {name} is not ready"
        for name in machines
        if not any(name_of(one) == name and is_true(one, ConditionType.READY) for one in listed)
    ]
    found += [f"pod {name} was deleted and is there" for name in pods if name not in users]
    for name, user in users.items():
        pod = pods.get(name)
        if pod is None or uid_of(pod) != user.uid:
            found.append(f"pod {name} is gone, and no user deleted it")
        else:
            found += pod_differences(pod, user, machines, list(pods.values()), allocatable)
    present = {uid_of(pod): pod for pod in pods.values()}
    for node, machine in machines.items():
        for uid, held in machine.pods.items():
            if uid not in present or lookup(present[uid], "spec", "nodeName") != node:
                found.append(f"{node} still has pod {held.config.name}, which is not its own")
    return found


def pod_differences(
    pod: Object,
    user: UserPod,
    machines: Mapping[str, FakeMachine],
    pods: list[Object],
    allocatable: Mapping[str, Amounts],
) -> list[str]:
    name, requested = name_of(pod), requests_of(pod)
    overhead = parse_amounts(lookup(pod, "spec", "overhead", default={}))
    wanted = add(Amounts(user.size.cpu_milli, user.size.memory_bytes), overhead)
    if requested != wanted:
        return [f"pod {name} asks for {requested}, and its user was told {wanted}"]
    if is_terminal(pod):
        reason = lookup(pod, "status", "reason", default="")
        return [] if reason in _TURNED_AWAY else [f"pod {name} has ended: {reason}"]
    node, phase = lookup(pod, "spec", "nodeName", default=""), phase_of(pod)
    if not node:
        roomy = [one for one in allocatable if has_room(requested, one, pods, allocatable)]
        return [f"pod {name} has no node, and {roomy[0]} has room"] if roomy else []
    if phase in (ResizePhase.DEFERRED, ResizePhase.INFEASIBLE):
        fits = has_room(requested, node, [one for one in pods if one is not pod], allocatable)
        return [f"pod {name} is {phase}, and {node} has room"] if fits else []
    if phase not in (ResizePhase.NONE, ResizePhase.DONE):
        return [f"the resize of pod {name} is still {phase}"]
    return _machine_differences(user, node, machines[node])


def _machine_differences(user: UserPod, node: str, machine: FakeMachine) -> list[str]:
    held = machine.pods.get(user.uid)
    views = [] if held is None else list(held.containers.values())
    if not views or any(view.phase is not ContainerPhase.RUNNING for view in views):
        return [f"pod {user.name} does not run on {node}"]
    real = held_by(machine, user.uid)
    if real != Amounts(user.size.cpu_milli, user.size.memory_bytes):
        return [f"pod {user.name} has {real} on {node}, and its user was told {user.size}"]
    return []


def has_room(
    requested: Amounts, node: str, pods: list[Object], allocatable: Mapping[str, Amounts]
) -> bool:
    here = [
        footprint(pod)
        for pod in pods
        if lookup(pod, "spec", "nodeName") == node and not is_terminal(pod)
    ]
    together, bound = total([*here, requested]), allocatable[node]
    cpu_fits = (together.cpu_milli or 0) <= (bound.cpu_milli or 0)
    return cpu_fits and (together.memory_bytes or 0) <= (bound.memory_bytes or 0)


async def until_converged(
    client: Client,
    nodes: list[SimNode],
    users: Mapping[str, UserPod],
    clock: Clock,
    limit_seconds: float,
) -> float:
    """Return how long it took; raises CheckFailedError after ``limit_seconds``."""
    began = clock.monotonic()
    while found := await differences(client, nodes, users):
        if clock.monotonic() - began > limit_seconds:
            shown = "; ".join(found[:5])
            raise CheckFailedError("convergence", f"{len(found)} differences: {shown}")
        await clock.sleep(_CONVERGENCE_SECONDS)
    return clock.monotonic() - began
