"""Hooks of a resize: a workload is asked before it shrinks, and told when it is done."""

from __future__ import annotations

import pytest

from livesize.api.errors import FieldErrorKind
from livesize.api.objects import evolve
from livesize.api.resize_hooks import parse_command
from livesize.api.resize_state import resize_state
from livesize.api.validation.hooks import validate_hooks
from livesize.runtime.fake import Behaviour
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

ASK, TELL = ("/bin/sh", "-c", "may I"), ("tell", "them")
ANNOTATIONS = {
    "livesize.dev/pre-shrink": "may I",
    "livesize.dev/post-resize.app": '["tell", "them"]',
    "livesize.dev/hook-timeout": "200ms",
}


async def run(world: World) -> str:
    await world.start()
    await world.api.run_pod("db", container(), container("side"))
    uid = await world.running("db")
    await world.api.edit("db", ("metadata", "annotations"), ANNOTATIONS)
    return uid


def steps(world: World) -> list[str]:
    return [step["name"] for step in resize_state(world.api.pod("db"))["steps"]]


async def test_a_shrink_asks_first_and_tells_in_the_end(world: World) -> None:
    uid = await run(world)
    await world.api.resize("db", "app", memory="32Mi", cpu="1")
    await world.phase("db", "Done")
    assert world.memory_bytes(uid) == 32 * 1024 * 1024
    sizes = {
        "LIVESIZE_OLD_CPU": "500m",
        "LIVESIZE_OLD_MEMORY": "64Mi",
        "LIVESIZE_NEW_CPU": "1",
        "LIVESIZE_NEW_MEMORY": "32Mi",
    }
    assert world.machine.commands == [("app", ASK, sizes), ("app", TELL, sizes)]
    names = steps(world)
    assert names.index("pre-shrink:app") < names.index("pod:cpu")
    assert names[-2:] == ["post-resize:app", "actuated"]


async def test_a_growth_does_not_ask(world: World) -> None:
    await run(world)
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert [command for _, command, _ in world.machine.commands] == [TELL]


async def test_a_no_stops_the_shrink_until_it_is_a_yes(world: World) -> None:
    uid = await run(world)
    world.machine.behaviours[ASK] = Behaviour(exit_code=1, output="let me see\nstill in use\n")
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Error")
    state = resize_state(world.api.pod("db"))
    assert state["message"] == "the pre-shrink hook of container app says: still in use"
    assert world.memory_bytes(uid) == 64 * 1024 * 1024
    assert world.machine.writes == []
    world.machine.behaviours[ASK] = Behaviour(exit_code=0)
    await world.phase("db", "Done")
    assert world.memory_bytes(uid) == 32 * 1024 * 1024


async def test_one_that_does_not_end_in_time_is_a_no(world: World) -> None:
    await run(world)
    world.machine.behaviours[ASK] = Behaviour()
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Error")
    assert "did not end within 0.2 s" in resize_state(world.api.pod("db"))["message"]


async def test_a_shrink_that_has_to_wait_asks_only_once(world: World) -> None:
    uid = await run(world)
    world.machine.use_memory(uid, "app", 48 * 1024 * 1024)
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Error")
    await world.until(
        lambda: "below current usage" in resize_state(world.api.pod("db"))["message"],
        "it waits for memory",
    )
    world.machine.use_memory(uid, "app", 1024 * 1024)
    await world.phase("db", "Done")
    assert [command for _, command, _ in world.machine.commands] == [ASK, TELL]


async def test_neither_a_newer_size_nor_the_end_waits_for_a_hook(world: World) -> None:
    uid = await run(world)
    slow = {**ANNOTATIONS, "livesize.dev/hook-timeout": "10m"}
    await world.api.edit("db", ("metadata", "annotations"), slow)
    world.machine.behaviours[ASK] = Behaviour()
    await world.api.resize("db", "app", memory="32Mi")
    await world.until(lambda: world.machine.commands, "it is asked")
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert world.memory_bytes(uid) == 128 * 1024 * 1024
    await world.api.resize("db", "app", memory="32Mi")
    asked = len(world.machine.commands)
    await world.until(lambda: len(world.machine.commands) > asked, "it is asked again")
    await world.api.mark_deleted("db")
    await world.until(lambda: not world.api.has("db"), "gone")


async def test_after_a_resize_a_failure_is_an_event_only(world: World) -> None:
    await run(world)
    world.machine.behaviours[TELL] = Behaviour(exit_code=9)
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    await world.until(lambda: "FailedPostResizeHook" in world.api.event_reasons("db"), "told")


async def test_a_container_that_restarts_for_its_size_is_not_asked(world: World) -> None:
    await world.start()
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    await world.api.run_pod("db", container(resizePolicy=policy))
    await world.running("db")
    await world.api.edit("db", ("metadata", "annotations"), ANNOTATIONS)
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Done")
    assert world.machine.commands == []


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("", ()),
        ("kill -HUP 1", ("/bin/sh", "-c", "kill -HUP 1")),
        ('["kill", "1"]', ("kill", "1")),
        ("[]", None),
        ("[1]", None),
        ("[kill", None),
    ],
)
def test_how_a_command_is_written(text: str, command: tuple[str, ...] | None) -> None:
    assert parse_command(text) == command


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("livesize.dev/pre-shrink", "[1]"),
        ("livesize.dev/post-resize.app", "[]"),
        ("livesize.dev/hook-timeout", "soon"),
        ("livesize.dev/hook-timeout", "1h"),
    ],
)
def test_what_is_no_command_or_no_time_is_refused_by_its_field(name: str, text: str) -> None:
    (error,) = validate_hooks(evolve({}, ("metadata", "annotations"), {name: text}))
    assert (error.kind, error.field) == (
        FieldErrorKind.INVALID,
        f"metadata.annotations[{name}]",
    )
