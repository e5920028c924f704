"""Where an API server listens, and how others call that."""

from __future__ import annotations

import ipaddress
import socket

import click


def parse_listen(text: str, option: str = "--listen") -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(
            f"{text!r} is not HOST:PORT, for instance 127.0.0.1:7443", param_hint=option
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def listen_on(host: str, port: int, option: str = "--listen") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as failure:
        raise click.ClickException(
            f"cannot listen on {host}:{port}: {_plain_reason(failure)};"
            f" choose another with {option}"
        ) from failure


def own_address(listener: socket.socket) -> str:
    """The address it listens on, or for one that listens on all of them this machine's own."""
    host = str(listener.getsockname()[0])
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def is_loopback(host: str) -> bool:
    """Whether who listens on this address answers this machine alone."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def server_url(listener: socket.socket) -> str:
    """How this machine reaches it."""
    host, port = own_address(listener), listener.getsockname()[1]
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _plain_reason(failure: OSError) -> str:
    """Without Python's remark about the address, which our sentence has already."""
    return (failure.strerror or str(failure)).partition(" (while attempting")[0]
