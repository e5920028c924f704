"""A node's endpoint: whom it answers, what it carries, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from livesize.agent.endpoint.server import Endpoint, EndpointServer
from livesize.api.channels import (
    PROTOCOLS,
    format_end_of_input,
    format_input,
    format_size,
    parse_end,
)
from livesize.api.kernel_units import KernelLimits
from livesize.api.spdy import DataFrame, FrameParser, Framer, ReplyFrame
from livesize.machinery.clock import Clock, SystemClock
from livesize.machinery.context import system_context
from livesize.runtime.fake import FAKE_IMAGE, Behaviour, FakeMachine, FakeRuntime
from livesize.runtime.fake_streams import FakeSession
from livesize.runtime.interface import ContainerConfig, PodConfig, RuntimeCallError
from livesize.runtime.streams import ExecRequest, PortStreams, Session

LIMITS = KernelLimits(1024, 100_000, 64 << 20)
RUNS = ("run",)


class Runtime(FakeRuntime):
    """Remembers sessions; its ports are servers of the test."""

    def __init__(self, world: FakeMachine) -> None:
        super().__init__(context=world.context, machine=world)
        self.sessions: list[FakeSession] = []
        self.port = 0

    async def exec(self, request: ExecRequest) -> Session:
        session = await super().exec(request)
        assert isinstance(session, FakeSession)
        self.sessions.append(session)
        return session

    async def connect(self, pod_uid: str, port: int) -> PortStreams:
        if port != 80:
            raise RuntimeCallError(f"cannot connect to port {port}: Connection refused")
        return await asyncio.open_connection("127.0.0.1", self.port)


class Node:
    def __init__(self, runtime: Runtime, client: aiohttp.ClientSession) -> None:
        self.runtime = runtime
        self.client = client

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(f"http://node{path}") as answer:
            return answer.status, await answer.text()

    def switched(self, path: str, *protocols: str) -> aiohttp.client._WSRequestContextManager:
        return self.client.ws_connect(f"http://node{path}", protocols=protocols or PROTOCOLS)


async def serve(path: Path, users: set[int], clock: Clock | None = None) -> AsyncIterator[Node]:
    behaviours = {
        RUNS: Behaviour(output="one\ntwo\nthree\n"),
        ("fails",): Behaviour(exit_code=3, output="said\n"),
        ("stays",): Behaviour(output="here\n"),
        ("cat",): Behaviour(exit_code=0),
        ("missing",): Behaviour(start_error="the image has no program 'missing'"),
    }
    runtime = Runtime(FakeMachine(system_context(), behaviours=behaviours))
    await runtime.open()
    await runtime.create_pod(PodConfig("u-1", "default", "db", LIMITS))
    await runtime.start_container(
        ContainerConfig("u-1", "app", FAKE_IMAGE, RUNS, (), (), "", "db", LIMITS)
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        endpoint = Endpoint(listener, users=frozenset(users))
        server = asyncio.create_task(
            EndpointServer(endpoint, runtime, clock or SystemClock()).run()
        )
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client:
            yield Node(runtime, client)
        server.cancel()
        with pytest.raises(asyncio.CancelledError):
            await server


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async for made in serve(tmp_path / "s", {os.geteuid()}):
        yield made


async def test_who_is_no_apiserver_is_not_answered(tmp_path: Path) -> None:
    async for node in serve(tmp_path / "s", {4_000_000}):
        status, words = await node.get("/logs/u-1/app")
        assert (status, words) == (403, "only an API server of this cluster is answered here")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "one\ntwo\nthree\n"),
        ("?tailLines=1", "three\n"),
        ("?tailLines=0", ""),
        ("?limitBytes=6", "one\ntw"),
        ("?since=99999999999", ""),
    ],
)
async def test_logs(node: Node, query: str, text: str) -> None:
    assert await node.get(f"/logs/u-1/app{query}") == (200, text)


async def test_logs_with_times(node: Node) -> None:
    _, text = await node.get("/logs/u-1/app?timestamps=1&tailLines=1")
    time, _, line = text.partition(" ")
    assert line == "three\n"
    assert len(time) == len("2026-11-16T07:58:38.332943872Z")


async def test_following_ends_with_the_container(node: Node) -> None:
    async with asyncio.TaskGroup() as group:
        following = group.create_task(node.get("/logs/u-1/app?follow=1"))
        await asyncio.sleep(0.05)
        assert not following.done()
        node.runtime.world.exit("u-1", "app", 0)
    assert following.result() == (200, "one\ntwo\nthree\n")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/logs/u-1/app?previous=1", 404),
        ("/logs/u-1/other", 404),
        ("/logs/u-2/app", 404),
        ("/exec/u-2/app?command=run", 404),
        ("/attach/u-1/other", 404),
        ("/portforward/u-2", 404),
        ("/portforward/u-1/app", 404),
        ("/elsewhere", 404),
        ("/", 404),
    ],
)
async def test_what_is_not_there(node: Node, path: str, status: int) -> None:
    assert (await node.get(path))[0] == status


async def test_a_command_may_be_as_long_as_linux_takes_one(node: Node) -> None:
    """128 KiB, each byte of which takes three in the path."""
    command = "%0A" * (128 * 1024 - 1)
    path = URL(f"http://node/exec/u-1/other?command={command}", encoded=True)
    async with node.client.get(path) as answer:
        assert answer.status == 404  # no such container: the command was read


async def test_a_container_that_has_ended_runs_nothing(node: Node) -> None:
    node.runtime.world.exit("u-1", "app", 0)
    assert (await node.get("/exec/u-1/app?command=cat")) == (400, "container app does not run")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_exec_output_and_exit_code(node: Node, protocol: str) -> None:
    async with node.switched("/exec/u-1/app?command=fails", protocol) as stream:
        assert stream.protocol == protocol
        messages = [message.data async for message in stream]
    assert messages[:3] == [b"\x01", b"\x02", b"\x01said\n"]
    assert parse_end(messages[3][1:]) == (3, "")
    assert stream.close_code == 1000


async def test_exec_that_cannot_run_says_why_within(node: Node) -> None:
    async with node.switched("/exec/u-1/app?command=missing") as stream:
        (message,) = [message.data async for message in stream]
    code, words = parse_end(message[1:])
    assert code == 1
    assert words.endswith("the image has no program 'missing'")


async def test_exec_input_end_of_input_and_size(node: Node) -> None:
    path = "/exec/u-1/app?command=cat&stdin=1&tty=1"
    async with node.switched(path) as stream:
        await stream.send_bytes(format_size(99, 33))
        await stream.send_bytes(format_input(b"typed"))
        assert [(await stream.receive_bytes()) for _ in range(2)] == [b"\x01", b"\x01typed"]
        assert node.runtime.sessions[0].size == (99, 33)
        await stream.send_bytes(format_end_of_input())
        assert parse_end((await stream.receive_bytes())[1:]) == (0, "")


@pytest.mark.parametrize("politely", [True, False])
async def test_a_client_that_goes_ends_the_session(node: Node, politely: bool) -> None:
    stream = await node.switched("/exec/u-1/app?command=stays")
    while await stream.receive_bytes() != b"\x01here\n":
        pass
    (session,) = node.runtime.sessions
    if politely:
        await stream.close()
    else:
        await node.client.close()
    async with asyncio.timeout(5):
        await session.exit_code()


async def test_ports_are_forwarded_and_a_refusal_is_a_sentence(node: Node) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100)).upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    node.runtime.port = server.sockets[0].getsockname()[1]
    framer, parser, frames = Framer(), FrameParser(), []
    async with node.switched("/portforward/u-1", "SPDY/3.1+portforward.k8s.io") as stream:
        for number, port in enumerate(("80", "81")):
            for offset, kind in enumerate(("error", "data")):
                headers = {"streamtype": kind, "port": port, "requestid": str(number)}
                await stream.send_bytes(framer.open(4 * number + 2 * offset + 1, headers))
        await stream.send_bytes(framer.data(3, b"quiet"))
        async with asyncio.timeout(5):
            while sum(isinstance(one, DataFrame) and one.last for one in frames) < 4:
                frames += list(parser.feed(await stream.receive_bytes()))
    server.close()
    assert [one for one in frames if isinstance(one, ReplyFrame)] == [
        ReplyFrame(number) for number in (1, 3, 5, 7)
    ]
    by_stream: dict[int, bytes] = {}
    for one in frames:
        if isinstance(one, DataFrame):
            by_stream[one.stream] = by_stream.get(one.stream, b"") + one.data
    assert by_stream[3] == b"QUIET"
    assert by_stream[1] == b""
    assert b"cannot connect to port 81: Connection refused" in by_stream[5]


async def test_a_port_that_was_not_allowed_is_not_forwarded(node: Node) -> None:
    connected: list[int] = []

    async def connect(pod_uid: str, port: int) -> PortStreams:
        connected.append(port)
        raise RuntimeCallError("only tried")

    node.runtime.connect = connect  # type: ignore[method-assign]
    framer, parser, frames = Framer(), FrameParser(), []
    path = "/portforward/u-1?port=80&port=8080"
    async with node.switched(path, "SPDY/3.1+portforward.k8s.io") as stream:
        for number, port in enumerate(("22", "80")):
            for offset, kind in enumerate(("error", "data")):
                headers = {"streamtype": kind, "port": port, "requestid": str(number)}
                await stream.send_bytes(framer.open(4 * number + 2 * offset + 1, headers))
        async with asyncio.timeout(5):
            while sum(isinstance(one, DataFrame) and one.last for one in frames) < 4:
                frames += list(parser.feed(await stream.receive_bytes()))
    said = {one.stream: one.data for one in frames if isinstance(one, DataFrame) and one.data}
    assert connected == [80]
    assert b"declares 80, 8080, and only an admin forwards other ports" in said[1]
    assert b"only tried" in said[5]


async def test_who_speaks_no_spdy_is_hung_up_on(node: Node) -> None:
    async with node.switched("/portforward/u-1", "SPDY/3.1+portforward.k8s.io") as stream:
        await stream.send_bytes(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert [message async for message in stream] == []
