"""Probes and lifecycle hooks: what answers mean, and what the agent does about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.agent.probes.checks import Prober
from livesize.agent.probes.plan import (
    GetPage,
    OpenPort,
    ProbeConfig,
    ProbeKind,
    ProbeState,
    RunCommand,
    count,
    parse_probe,
)
from livesize.api.conditions import is_true
from livesize.api.objects import Object, lookup
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.runtime.fake import Behaviour, FakeRuntime
from livesize.runtime.interface import ContainerPhase
from unit.agent.world import PatientWorld, World, container
from virtual_time import CLOCK, real_time, virtual_time

pytestmark = virtual_time

CHECK = ("check",)
READY = ("ready",)


def probe(successes: int = 1, failures: int = 3) -> ProbeConfig:
    return ProbeConfig(
        ProbeKind.READINESS, RunCommand(CHECK), successes=successes, failures=failures
    )


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ("", None),
        ("+", True),
        ("--", None),
        ("---", False),
        ("+--", True),
        ("+---", False),
        ("---+", True),
        ("--+--", True),
    ],
)
def test_a_verdict_changes_after_so_many_answers_in_a_row(
    answers: str, verdict: bool | None
) -> None:
    state = ProbeState()
    for answer in answers:
        state = count(probe(), state, answer == "+")
    assert state.verdict is verdict


@given(answers=st.lists(st.booleans()), successes=st.integers(1, 4), failures=st.integers(1, 4))
def test_the_verdict_is_the_last_run_that_was_long_enough(
    answers: list[bool], successes: int, failures: int
) -> None:
    state, expected = ProbeState(), None
    for index in range(len(answers)):
        for answer, needed in ((True, successes), (False, failures)):
            if index + 1 >= needed and answers[index + 1 - needed : index + 1] == [answer] * needed:
                expected = answer
    for answer in answers:
        state = count(probe(successes, failures), state, answer)
    assert state.verdict is expected


def test_what_is_left_out_of_a_probe_is_as_in_kubernetes() -> None:
    given = {"httpGet": {"port": "web", "path": "/health"}}
    told = {"name": "a", "ports": [{"name": "web", "containerPort": 80}], "readinessProbe": given}
    assert parse_probe(told, ProbeKind.READINESS) == ProbeConfig(
        ProbeKind.READINESS, GetPage(80, "/health"), 0.0, 10.0, 1.0, 1, 3
    )
    assert parse_probe(told, ProbeKind.LIVENESS) is None


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server that answers /good with 200, and anything else with 503."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        while (await reader.readline()).strip():
            pass
        word = b"200 OK" if line.startswith(b"GET /good ") else b"503 Busy"
        writer.write(b"HTTP/1.1 " + word + b"\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@real_time
async def test_pages_and_ports_are_really_asked_for(port: int) -> None:
    clock = SystemClock()
    prober = Prober(FakeRuntime(context=system_context()), clock, "uid", "app", "127.0.0.1")
    assert await prober.ask(GetPage(port, "/good"), 5) == ""
    assert await prober.ask(GetPage(port, "/bad"), 5) == "HTTP probe failed with statuscode: 503"
    assert await prober.ask(OpenPort(port), 5) == ""
    assert "cannot connect" in await prober.ask(OpenPort(1), 5)
    assert "no port of that name" in await prober.ask(OpenPort(0), 5)


@pytest.fixture
def quick() -> PatientWorld:
    return PatientWorld()


def asks(command: tuple[str, ...], **more: int) -> Object:
    return {"exec": {"command": list(command)}, "periodSeconds": 1, "failureThreshold": 2, **more}


def answers(world: World, command: tuple[str, ...], *, well: bool) -> None:
    world.machine.behaviours[command] = Behaviour(exit_code=0 if well else 1, output="not yet")


def is_ready(world: World) -> bool:
    return is_true(world.api.pod("db"), "Ready")


async def test_readiness_comes_and_goes_and_restarts_nothing(quick: PatientWorld) -> None:
    await quick.start()
    answers(quick, READY, well=False)
    await quick.api.run_pod("db", container(readinessProbe=asks(READY)))
    uid = await quick.running("db")
    assert not is_ready(quick)
    await quick.until(lambda: "Unhealthy" in quick.api.event_reasons("db"), "it is told")
    answers(quick, READY, well=True)
    await quick.until(lambda: is_ready(quick), "ready")
    answers(quick, READY, well=False)
    await quick.until(lambda: not is_ready(quick), "not ready any more")
    assert quick.attempt(uid) == 0


async def test_what_is_not_alive_restarts(quick: PatientWorld) -> None:
    await quick.start()
    answers(quick, CHECK, well=True)
    await quick.api.run_pod("db", container(livenessProbe=asks(CHECK)))
    uid = await quick.running("db")
    assert is_ready(quick)
    answers(quick, CHECK, well=False)
    await quick.until(lambda: quick.attempt(uid) >= 1, "restarted")
    answers(quick, CHECK, well=True)
    await quick.until(lambda: is_ready(quick), "ready again")
    await quick.until(lambda: "Killing" in quick.api.event_reasons("db"), "it is told")


async def test_what_is_not_alive_has_the_grace_its_probe_says(quick: PatientWorld) -> None:
    await quick.start()
    quick.machine.behaviours["hang",] = Behaviour(ignores_sigterm=True)
    answers(quick, CHECK, well=True)
    probe = asks(CHECK, terminationGracePeriodSeconds=1)
    await quick.api.run_pod(
        "db",
        container(command=["hang"], livenessProbe=probe),
        terminationGracePeriodSeconds=3600,
    )
    uid = await quick.running("db")
    answers(quick, CHECK, well=False)
    await quick.until(lambda: quick.attempt(uid) >= 1, "restarted")
    await quick.api.mark_deleted("db", grace_seconds=0)
    await quick.until(lambda: not quick.api.has("db"), "gone")


async def test_a_probes_grace_counts_also_where_it_is_longer_than_the_pods(
    quick: PatientWorld,
) -> None:
    await quick.start()
    quick.machine.behaviours["hang",] = Behaviour(ignores_sigterm=True)
    answers(quick, CHECK, well=True)
    probe = asks(CHECK, terminationGracePeriodSeconds=3600)
    await quick.api.run_pod(
        "db", container(command=["hang"], livenessProbe=probe), terminationGracePeriodSeconds=0
    )
    uid = await quick.running("db")
    answers(quick, CHECK, well=False)
    await quick.until(lambda: "Killing" in quick.api.event_reasons("db"), "it is being stopped")
    assert quick.machine.pods[uid].containers["app"].phase is ContainerPhase.RUNNING
    await quick.api.vanish("db")
    await quick.until(lambda: uid not in quick.machine.pods, "gone, without waiting for that")


async def test_a_pod_that_never_restarts_fails_when_it_is_not_alive(quick: PatientWorld) -> None:
    await quick.start()
    answers(quick, CHECK, well=False)
    await quick.api.run_pod("db", container(livenessProbe=asks(CHECK)), restartPolicy="Never")
    await quick.until(
        lambda: lookup(quick.api.pod("db"), "status", "phase") == "Failed", "it has failed"
    )


async def test_nothing_else_is_asked_before_the_startup_probe_has_succeeded(
    quick: PatientWorld,
) -> None:
    await quick.start()
    answers(quick, ("begun",), well=False)
    answers(quick, CHECK, well=False)
    startup = asks(("begun",), failureThreshold=1000)
    await quick.api.run_pod("db", container(startupProbe=startup, livenessProbe=asks(CHECK)))
    uid = await quick.running("db")
    await quick.until(lambda: len(quick.machine.commands) > 3, "it is asked")
    assert {command for _, command, _ in quick.machine.commands} == {("begun",)}
    status = quick.api.pod("db")["status"]["containerStatuses"][0]
    assert (status["started"], status["ready"]) == (False, False)
    answers(quick, CHECK, well=True)
    answers(quick, ("begun",), well=True)
    await quick.until(lambda: is_ready(quick), "started and ready")
    assert quick.attempt(uid) == 0


async def test_a_startup_probe_that_gives_up_restarts(quick: PatientWorld) -> None:
    await quick.start()
    answers(quick, CHECK, well=False)
    await quick.api.run_pod("db", container(startupProbe=asks(CHECK)))
    uid = await quick.running("db")
    await quick.until(lambda: quick.attempt(uid) >= 1, "restarted")


async def test_a_new_agent_takes_a_ready_container_for_ready(quick: PatientWorld) -> None:
    await quick.start()
    answers(quick, READY, well=True)
    await quick.api.run_pod("db", container(readinessProbe=asks(READY)))
    await quick.running("db")
    await quick.until(lambda: is_ready(quick), "ready")
    seen: list[bool] = []
    await quick.stop()
    await quick.start()
    asked = len(quick.machine.commands)
    while len(quick.machine.commands) < asked + 3:
        seen.append(is_ready(quick))
        await CLOCK.sleep(0.1)
    assert all(seen)


async def test_a_failing_post_start_hook_ends_the_container(quick: PatientWorld) -> None:
    await quick.start()
    answers(quick, ("greet",), well=False)
    hook = {"postStart": {"exec": {"command": ["greet"]}}}
    await quick.api.run_pod("db", container(lifecycle=hook))
    await quick.until(lambda: "FailedPostStartHook" in quick.api.event_reasons("db"), "told")
    answers(quick, ("greet",), well=True)
    uid = await quick.running("db")
    await quick.until(lambda: quick.attempt(uid) >= 1, "started again")


async def test_a_pre_stop_hook_runs_before_the_end(quick: PatientWorld) -> None:
    await quick.start()
    order: list[str] = []
    leave = quick.machine.exit

    def exit_(pod_uid: str, name: str, code: int, **more: bool) -> None:
        order.extend(command[0] for _, command, _ in quick.machine.commands)
        order.append("exit")
        leave(pod_uid, name, code, **more)

    quick.machine.exit = exit_  # type: ignore[method-assign]
    hook = {"preStop": {"exec": {"command": ["bye"]}}}
    await quick.api.run_pod("db", container(lifecycle=hook))
    await quick.running("db")
    await quick.api.mark_deleted("db")
    await quick.until(lambda: not quick.api.has("db"), "gone")
    assert order == ["bye", "exit"]


async def test_a_pre_stop_hook_runs_also_when_the_node_is_stopped(quick: PatientWorld) -> None:
    await quick.start()
    hook = {"preStop": {"exec": {"command": ["bye"]}}}
    await quick.api.run_pod("db", container(lifecycle=hook))
    await quick.running("db")
    agent = quick.agent
    assert agent is not None
    assert quick._task is not None
    quick._task.cancel()
    await asyncio.wait([quick._task])
    await agent.stop_workloads(asyncio.Event())
    assert [command for _, command, _ in quick.machine.commands] == [("bye",)]
    assert quick.machine.pods == {}
    await quick.clean_up()
