"""Carries a session over a WebSocket, in both directions at the speed of the slower side."""

from __future__ import annotations

import asyncio

from aiohttp import WSMsgType, web

from livesize.api.channels import (
    PROTOCOLS,
    EmptyMessage,
    EndOfInput,
    InputMessage,
    TerminalSize,
    format_end,
    format_failure,
    format_output,
    parse_message,
)
from livesize.machinery.clock import Clock
from livesize.machinery.hangup import wait_hangup
from livesize.machinery.tasks import run_in_own_task
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.streams import STDERR, STDOUT, Session

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
CLOSE_SECONDS = 2.0


def make_socket(protocols: tuple[str, ...] = PROTOCOLS) -> web.WebSocketResponse:
    return web.WebSocketResponse(
        protocols=protocols,
        compress=False,
        max_msg_size=MAX_MESSAGE_BYTES,
        timeout=CLOSE_SECONDS,
    )


async def refuse(socket: web.WebSocketResponse, why: str) -> None:
    """The reason arrives where clients look for it: in the last message, not in the answer."""
    await socket.send_bytes(format_failure(why))
    await socket.close()


async def carry(
    request: web.BaseRequest, socket: web.WebSocketResponse, session: Session, clock: Clock
) -> None:
    """Until the session ends, or the client is gone; then it is closed."""
    transport = request.transport
    connection = None if transport is None else transport.get_extra_info("socket")
    try:
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_send_output(request, socket, session))
            others = [group.create_task(_take_input(socket, session, writing))]
            if connection is not None:
                others.append(group.create_task(_end_with(connection, clock, writing)))

            def end_others(_: object) -> None:
                for task in others:
                    task.cancel()

            writing.add_done_callback(end_others)
    except* ConnectionError:
        pass  # the client is gone
    finally:
        await run_in_own_task(session.close())


async def _send_output(
    request: web.BaseRequest, socket: web.WebSocketResponse, session: Session
) -> None:
    streams = (STDOUT,) if "tty" in request.query else (STDOUT, STDERR)
    for stream in streams:
        await socket.send_bytes(format_output(stream, b""))  # they stand: clients wait for it
    try:
        async for piece in session.output():
            await socket.send_bytes(format_output(piece.stream, piece.data))
        end = format_end(await session.exit_code())
    except RuntimeCallError as failure:
        end = format_failure(str(failure))
    await socket.send_bytes(end)
    await socket.close()


async def _take_input(
    socket: web.WebSocketResponse, session: Session, writing: asyncio.Task[None]
) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            continue
        match parse_message(message.data):
            case InputMessage(data=data):
                await session.write(data)
            case EndOfInput():
                await session.end_input()
            case TerminalSize(width=width, height=height):
                session.resize(width, height)
            case EmptyMessage():
                pass
    writing.cancel()


async def _end_with(connection: object, clock: Clock, writing: asyncio.Task[None]) -> None:
    """While stdin is full nothing is read, and nobody else notices that the client has gone."""
    await wait_hangup(connection, clock)  # type: ignore[arg-type]  # a TransportSocket
    writing.cancel()
