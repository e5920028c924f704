"""What a node uses goes with its heartbeat."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from livesize.agent.usage import MeasuredLease, UsageMeter
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import Object
from livesize.api.usage import Usage, parse_usage
from livesize.runtime.fake import FAKE_IMAGE, FakeMachine, FakeRuntime
from livesize.runtime.interface import ContainerConfig, ContainerGroup, PodConfig, RuntimeCallError
from livesize.runtime.process.machine_facts import observe_usage
from unit.agent.world import World, container
from virtual_time import CLOCK, virtual_context, virtual_time

pytestmark = virtual_time

LIMITS = KernelLimits(cpu_weight=512, cpu_quota_us=None, memory_limit_bytes=None)
SECOND = 10**9


class Bench:
    """One pod with one container on a machine whose counters the test moves."""

    def __init__(self) -> None:
        self.machine = FakeMachine(virtual_context())
        self.runtime = FakeRuntime(context=self.machine.context, machine=self.machine)
        self.meter = UsageMeter(self.runtime, CLOCK)

    async def start(self, attempt: int = 0) -> None:
        await self.runtime.create_pod(PodConfig("u1", "default", "web", LIMITS))
        start = ContainerConfig(
            pod_uid="u1",
            name="app",
            image=FAKE_IMAGE,
            command=(),
            args=(),
            env=(),
            working_dir="",
            hostname="web",
            limits=LIMITS,
            attempt=attempt,
        )
        await self.runtime.start_container(start)

    async def work(self, cpu_seconds: float, for_seconds: float) -> None:
        self.machine.group(ContainerGroup("u1", "app")).cpu_usage_ns += int(cpu_seconds * SECOND)
        await CLOCK.sleep(for_seconds)


async def test_the_rate_between_two_heartbeats() -> None:
    bench = Bench()
    await bench.start()
    bench.machine.use_memory("u1", "app", 4096)
    await bench.work(1.0, for_seconds=10)
    first = await bench.meter.measure()
    assert first.pods == {"u1": {"app": Usage(SECOND // 10, 4096, 10.0)}}
    assert first.node == Usage(SECOND // 10, 4096, 10.0)
    await bench.work(5.0, for_seconds=10)
    second = await bench.meter.measure()
    assert second.pods == {"u1": {"app": Usage(SECOND // 2, 4096, 10.0)}}
    assert second.node == Usage(SECOND // 2, 4096, 10.0)


async def test_what_has_just_begun_or_ended_is_left_out() -> None:
    bench = Bench()
    await bench.start()
    bench.machine.use_memory("u1", "app", 4096)
    await bench.work(0.1, for_seconds=0.5)
    early = await bench.meter.measure()
    assert (early.node, early.pods) == (None, {})
    await bench.work(0.9, for_seconds=9.5)
    assert (await bench.meter.measure()).node == Usage(SECOND // 10, 4096, 10.0)
    await bench.runtime.stop_container("u1", "app", 0)
    assert (await bench.meter.measure()).pods == {}


async def test_what_cannot_be_read_is_left_out_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await bench.start()
    await bench.work(1.0, for_seconds=10)

    def fails(*_: object) -> NoReturn:
        raise RuntimeCallError("no such file")

    with monkeypatch.context() as patched:
        patched.setattr(bench.runtime, "machine_usage", fails)
        patched.setattr(bench.runtime, "read", fails)
        measured = await bench.meter.measure()
        assert (measured.node, measured.pods) == (None, {})
        assert (await UsageMeter(bench.runtime, CLOCK).measure()).node is None
    assert (await bench.meter.measure()).node == Usage(SECOND // 10, 2**20, 10.0)


async def test_a_heartbeat_carries_the_usage_and_keeps_other_annotations() -> None:
    bench = Bench()
    await bench.start()
    await bench.work(1.0, for_seconds=10)
    written: list[Object] = []

    class Record:
        async def load(self) -> Object | None:
            return None

        async def create(self, lease: Object) -> Object:
            written.append(lease)
            return lease

        update = create

    lease = MeasuredLease(Record(), bench.meter)
    assert await lease.load() is None
    await lease.create({"metadata": {"name": "n1"}})
    await lease.update({"metadata": {"name": "n1", "annotations": {"mine": "kept"}}})
    usage = parse_usage(written[0])
    assert usage is not None
    assert usage.pods["u1"]["app"].cpu_nano == SECOND // 10
    assert written[1]["metadata"]["annotations"]["mine"] == "kept"


async def test_an_agent_tells_what_its_pods_use(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    try:
        await world.api.run_pod("web", container())
        await world.running("web")
        lease = ("leases", "kube-node-lease", "node-1")
        await world.until(lambda: lease in world.api.objects, "the heartbeat began")
        assert parse_usage(world.api.objects[lease]) is not None
    finally:
        await world.stop()


def test_the_whole_machine_is_read_from_the_kernel() -> None:
    before = observe_usage()
    total = 0
    while observe_usage().cpu_usage_ns == before.cpu_usage_ns:
        total += sum(range(10_000))
    assert observe_usage().memory_working_set_bytes > 0
