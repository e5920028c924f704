"""What a probe asks, and what its answers mean. Pure.

A verdict changes only after as many answers of the same kind in a row as the probe says. Until its
startup probe has succeeded a container is asked nothing else. Before the first verdict it is not
started, not ready, and alive.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object

UNKNOWN_PORT = 0


class ProbeKind(enum.StrEnum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


FIELDS = {
    ProbeKind.STARTUP: "startupProbe",
    ProbeKind.LIVENESS: "livenessProbe",
    ProbeKind.READINESS: "readinessProbe",
}
_NAMES = frozenset(FIELDS.values())


class RunCommand(msgspec.Struct, frozen=True, tag=True):
    command: tuple[str, ...]


class GetPage(msgspec.Struct, frozen=True, tag=True):
    """``host`` empty: the pod's own address."""

    port: int
    path: str = "/"
    host: str = ""
    is_https: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class OpenPort(msgspec.Struct, frozen=True, tag=True):
    port: int
    host: str = ""


class Sleep(msgspec.Struct, frozen=True, tag=True):
    """Of lifecycle hooks only."""

    seconds: float


ProbeAction: TypeAlias = RunCommand | GetPage | OpenPort | Sleep


class ProbeConfig(msgspec.Struct, frozen=True):
    kind: ProbeKind
    handler: ProbeAction
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    successes: int = 1
    failures: int = 3
    grace_seconds: float | None = None  # for a container that fails it; None: the pod's


class ProbeState(msgspec.Struct, frozen=True):
    """``verdict`` None: there is none yet."""

    verdict: bool | None = None
    last: bool | None = None
    in_a_row: int = 0


def has_probes(container: Object) -> bool:
    return not container.keys().isdisjoint(_NAMES)


def parse_probe(container: Object, kind: ProbeKind) -> ProbeConfig | None:
    """None: the container has none of this kind, or one this node does not know."""
    given = container.get(FIELDS[kind])
    handler = None if not given else parse_handler(given, container)
    if not given or handler is None:
        return None
    return ProbeConfig(
        kind,
        handler,
        initial_delay_seconds=float(given.get("initialDelaySeconds") or 0),
        period_seconds=float(given.get("periodSeconds") or 10),
        timeout_seconds=float(given.get("timeoutSeconds") or 1),
        successes=int(given.get("successThreshold") or 1),
        failures=int(given.get("failureThreshold") or 3),
        grace_seconds=_seconds(given.get("terminationGracePeriodSeconds")),
    )


def parse_handler(given: Object, container: Object) -> ProbeAction | None:
    """Of a probe or a lifecycle hook; None: of a kind this node does not know."""
    if given.get("exec"):
        return RunCommand(tuple(given["exec"].get("command") or ()))
    if given.get("httpGet"):
        page = given["httpGet"]
        headers = page.get("httpHeaders") or []
        return GetPage(
            port=_port(page.get("port"), container),
            path=page.get("path") or "/",
            host=page.get("host") or "",
            is_https=page.get("scheme") == "HTTPS",
            headers=tuple((one.get("name", ""), one.get("value", "")) for one in headers),
        )
    if given.get("tcpSocket"):
        socket = given["tcpSocket"]
        return OpenPort(_port(socket.get("port"), container), socket.get("host") or "")
    if given.get("sleep"):
        return Sleep(float(given["sleep"].get("seconds") or 0))
    return None


def count(probe: ProbeConfig, state: ProbeState, succeeded: bool) -> ProbeState:
    """The state after one more answer."""
    in_a_row = state.in_a_row + 1 if state.last is succeeded else 1
    needed = probe.successes if succeeded else probe.failures
    verdict = succeeded if in_a_row >= needed else state.verdict
    return ProbeState(verdict, succeeded, min(in_a_row, needed))


def _seconds(number: int | None) -> float | None:
    return None if number is None else float(number)


def _port(port: str | int | None, container: Object) -> int:
    if isinstance(port, int):
        return port
    for one in container.get("ports") or []:
        if one.get("name") == port:
            return int(one.get("containerPort") or UNKNOWN_PORT)
    return int(port) if port and port.isdigit() else UNKNOWN_PORT


class ContainerHealth(msgspec.Struct, frozen=True):
    """What is known of one start. ``unhealthy``: why it has to be stopped."""

    started: bool = True
    ready: bool = True
    unhealthy: str = ""
    grace_seconds: float | None = None  # to end within, where it is unhealthy; None: the pod's


WELL = ContainerHealth()
