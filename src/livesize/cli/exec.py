"""`livesize exec`: a command in a running container, with our input, output and terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from livesize.api.channels import (
    PROTOCOLS,
    STATUS,
    STDERR,
    STDOUT,
    format_end_of_input,
    format_input,
    format_size,
    parse_end,
)
from livesize.api.kinds.pod_resource import PODS
from livesize.cli.completion import complete_target
from livesize.cli.connection import (
    CommandFailure,
    default_namespace,
    kubeconfig_option,
    namespace_option,
    run_with_client,
)
from livesize.cli.targets import parse_pod

if TYPE_CHECKING:
    from livesize.client.http import HttpClient

_PIECE_BYTES = 32 * 1024


class _Exec(click.Command):
    """Our options stand before POD; or anywhere before a ``--`` that begins the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = "--" in args
        return super().parse_args(ctx, args)


@click.command("exec", cls=_Exec)
@click.argument("pod", metavar="POD", shell_complete=complete_target)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@namespace_option
@click.option("-c", "--container", default="", help="Which one, where there are several.")
@click.option("-i", "--stdin", is_flag=True, help="Pass our input on.")
@click.option("-t", "--tty", "terminal", is_flag=True, help="With a terminal.")
@kubeconfig_option
def exec_command(
    pod: str, command: tuple[str, ...], namespace: str, kubeconfig: str, **options: Any
) -> None:
    """Run a command in a container. Its exit code is ours.

    \b
    Examples:
      livesize exec db ls /data
      livesize exec -it pod/db sh
      livesize exec db -c app -- ls -l /data
      livesize exec -i db sh -c 'cat > /data/new' < new
    """
    if options["terminal"] and not sys.stdin.isatty():
        raise click.UsageError("-t needs a terminal, and our input is none")
    path = PODS.path(default_namespace(kubeconfig, namespace), parse_pod(pod, "entered"), "exec")
    query = [("command", word) for word in command] + [("stdout", "true")]
    query += [("container", options["container"])] if options["container"] else []
    query += [("stdin", "true")] if options["stdin"] else []
    query.append(("tty", "true") if options["terminal"] else ("stderr", "true"))

    async def work(client: HttpClient) -> tuple[int, str]:
        async with client.websocket(path, query, PROTOCOLS) as socket:
            with _terminal() if options["terminal"] else contextlib.nullcontext():
                return await _carry(socket, **options)

    code, problem = run_with_client(kubeconfig, work)
    if problem:
        raise CommandFailure(problem)
    raise SystemExit(code)


async def _carry(socket: Any, *, stdin: bool, terminal: bool, **_: Any) -> tuple[int, str]:
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(_send_input(socket))] if stdin else []
        sending += [group.create_task(_send_sizes(socket))] if terminal else []
        end = 1, "the connection ended before the command did"
        async for message in socket:
            channel, data = message.data[:1], message.data[1:]
            if channel == bytes([STATUS]):
                end = parse_end(data)
            elif channel in (bytes([STDOUT]), bytes([STDERR])):
                out = sys.stdout.buffer if channel == bytes([STDOUT]) else sys.stderr.buffer
                out.write(data)
                out.flush()
        for task in sending:
            task.cancel()
    return end


async def _send_input(socket: Any) -> None:
    """Without a thread that would wait for a key after the command has ended."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    while True:
        readable = asyncio.Event()
        try:
            loop.add_reader(descriptor, readable.set)
        except PermissionError:
            readable.set()  # a file is always ready, and cannot be waited for
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
        data = os.read(descriptor, _PIECE_BYTES)
        if not data:
            await socket.send_bytes(format_end_of_input())
            return
        await socket.send_bytes(format_input(data))


async def _send_sizes(socket: Any) -> None:
    changed = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, changed.set)
    while True:
        size = shutil.get_terminal_size()
        await socket.send_bytes(format_size(size.columns, size.lines))
        await changed.wait()
        changed.clear()


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Keys go to the command as they are pressed; ours again afterwards."""
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
