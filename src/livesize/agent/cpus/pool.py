"""Binds containers to CPUs on the machine: exclusive CPUs, and the pool that all others share.

A pod's worker binds its own containers to their exclusive CPUs. The pool belongs to all pods, so
the node has one ``CpuPool``. It always computes the pool from the ledger: from the moment in which
the judge promises a CPU, nothing but its owner is bound to it. A container that is to get a CPU
alone first waits until all others have left it (``settle``), also those that start just then. A
CPU that came free is shared again soon after.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

from livesize.agent.allocation.ledger import Allocation, Ledger
from livesize.agent.cpus.plan import (
    Bind,
    BindingStep,
    Cpus,
    NarrowPool,
    plan_binding,
    plan_pins,
    start_cpus,
)
from livesize.api.group_changes import SetCpus
from livesize.machinery.steps import Step, StepFailedError
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    Runtime,
    RuntimeCallError,
)

log = get_logger("agent.cpus")


class CpuPool:
    """``shared``: what the pool is now. ``moved`` hears of which pod a container that shares was
    bound anew."""

    def __init__(
        self,
        runtime: Runtime,
        ledger: Ledger,
        shared: Callable[[], Cpus],
        moved: Callable[[str], None] = lambda _uid: None,
    ) -> None:
        self._runtime = runtime
        self._ledger = ledger
        self._shared = shared
        self._moved = moved
        self._starting: dict[ContainerGroup, tuple[Cpus, asyncio.Event]] = {}
        self._changed = asyncio.Event()
        self._settling = asyncio.Lock()

    def changed(self) -> None:
        """The pool may be another now."""
        self._changed.set()

    async def run(self, recheck_seconds: float) -> None:
        """Until cancelled: keep the pool as the ledger says."""
        while True:
            try:
                await self.settle()
            except (RuntimeCallError, StepFailedError) as failure:
                log.warning("shared CPUs not in step yet", reason=str(failure))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(recheck_seconds):
                    await self._changed.wait()
            self._changed.clear()

    async def start(self, config: ContainerConfig) -> ContainerView:
        """Start a container on the CPUs it may have."""
        entry = self._ledger.get(config.pod_uid)
        if entry is not None and config.name in entry.cpus:
            await self.settle()
            alone = start_cpus(entry, config.name, self._neighbours(config.pod_uid))
            if alone:
                return await self._runtime.start_container(_with_cpus(config, alone, alone=True))
        with self._is_starting(ContainerGroup(config.pod_uid, config.name)) as cpus:
            view = await self._runtime.start_container(_with_cpus(config, cpus, alone=False))
        if cpus != self._shared():
            self.changed()
        return view

    def pool(self) -> Cpus:
        return self._shared()

    def steps(self, entry: Allocation, names: Iterable[str]) -> list[Step]:
        """Bind those of a pod's running containers that have CPUs alone to them."""
        return [self.step(entry.uid, one) for one in self.plan(entry, names)]

    def plan(self, entry: Allocation, names: Iterable[str]) -> tuple[BindingStep, ...]:
        """What ``steps`` does."""
        wanted = {name: entry.cpus[name] for name in names if name in entry.cpus}
        observed = {
            name: self._runtime.read_cpus(ContainerGroup(entry.uid, name)) for name in wanted
        }
        return plan_binding(observed, wanted, self._shared())

    def step(self, uid: str, planned: BindingStep) -> Step:
        match planned:
            case NarrowPool():
                return Step(planned.name, self.settle)
            case Bind(container=name, cpus=cpus):
                group = ContainerGroup(uid, name)

                async def bind() -> None:
                    async with self._settling:
                        await self._bind(group, cpus)

                return Step(planned.name, bind)

    async def settle(self) -> None:
        """Bind every container that shares to the pool, and to no more."""
        shared = set(self._shared())
        for cpus, started in tuple(self._starting.values()):
            if not shared.issuperset(cpus):
                await started.wait()
        async with self._settling:
            for group in self._running():
                wanted = self._wanted(group)
                if wanted:
                    with contextlib.suppress(GoneError):
                        await self._bind(group, wanted)
                        self._moved(group.pod_uid)

    def _running(self) -> list[ContainerGroup]:
        return [
            ContainerGroup(pod.uid, view.name)
            for pod in self._runtime.list_pods()
            for view in pod.containers
            if view.phase is ContainerPhase.RUNNING
        ]

    def _neighbours(self, uid: str) -> dict[str, Cpus | None]:
        """What the containers of a pod are bound to."""
        found: dict[str, Cpus | None] = {}
        for group in self._running():
            if group.pod_uid == uid:
                with contextlib.suppress(GoneError):
                    found[group.container] = self._runtime.read_cpus(group)
        return found

    def _wanted(self, group: ContainerGroup) -> Cpus:
        """Empty: it is as it may be. One that has CPUs alone is its pod's to bind; here it only
        leaves what it may not have, as one that shared them until now."""
        try:
            observed = self._runtime.read_cpus(group)
        except GoneError:
            return ()
        shared, entry = self._shared(), self._ledger.get(group.pod_uid)
        alone = () if entry is None else entry.cpus.get(group.container, ())
        if entry is None or not alone:
            return () if observed == shared else shared
        allowed = {*shared, *alone, *entry.held_cpus.get(group.container, ())}
        if observed is not None and allowed.issuperset(observed):
            return ()
        return tuple(sorted(allowed.intersection(observed or shared))) or alone

    async def _bind(self, group: ContainerGroup, cpus: Cpus) -> None:
        await self._runtime.write(group, SetCpus(tuple(sorted(cpus))))
        found = self._runtime.read_cpus(group)
        if found != tuple(sorted(cpus)):
            raise StepFailedError(
                f"container {group.container} of pod {group.pod_uid} was bound to the CPUs {cpus},"
                f" but the machine says {found}"
            )

    @contextlib.contextmanager
    def _is_starting(self, group: ContainerGroup) -> Iterator[Cpus]:
        started, cpus = asyncio.Event(), self._shared()
        self._starting[group] = cpus, started
        try:
            yield cpus
        finally:
            del self._starting[group]
            started.set()


def _with_cpus(config: ContainerConfig, cpus: Cpus, *, alone: bool) -> ContainerConfig:
    vm = config.vm
    if vm is not None:
        vm = msgspec.structs.replace(vm, pins=plan_pins(cpus, vm.vcpus, alone=alone))
    return msgspec.structs.replace(config, cpus=tuple(sorted(cpus)), vm=vm)
