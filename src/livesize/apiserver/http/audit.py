"""The audit log: one line of JSON for each request, who did what to which object, and the outcome.

Lines have the shape of Kubernetes' audit.k8s.io/v1 Event. A watch is told when it begins; requests
for the server's health are not told. Tokens are in no line, and the bodies of Secrets neither,
whatever the level.

Requests never wait for the disk: a thread of its own writes. A line reaches the kernel, and with it
survives kill -9 of this process, as soon as that thread runs, ordinarily within milliseconds; what
is promised is 0.1 s while the disk keeps up. Where it does not, and MAX_WAITING lines wait, further
ones are counted, and the next line written says how many were lost. Files are synced to the disk
when they are rotated or closed.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import os
import queue
import secrets
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import orjson

from livesize.api.errors import StatusError
from livesize.api.objects import Object
from livesize.api.times import format_micro_time
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.http.handlers import verb_of
from livesize.apiserver.http.peers import IDENTITY, IMPERSONATED, SWITCHED
from livesize.apiserver.http.requests import AsgiMessage, Receive, Request, Scope, Send, read_head
from livesize.apiserver.http.router import Route, parse_route
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger

_log = get_logger("apiserver.audit")

MAX_WAITING = 20_000
MAX_BODY_BYTES = 64 * 1024
MAX_FILE_BYTES = 100 * 1024 * 1024
MAX_BACKUPS = 5
_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_NEVER_BODIES = frozenset({"secrets"})


class AuditLevel(enum.StrEnum):
    NONE = "none"
    METADATA = "metadata"
    REQUEST = "request"


class AuditSettings(msgspec.Struct, frozen=True):
    """``path`` None: no log. The file is renamed to .1, .2, … when it is ``max_bytes`` long."""

    path: Path | None = None
    level: AuditLevel = AuditLevel.METADATA
    max_bytes: int = MAX_FILE_BYTES
    max_backups: int = MAX_BACKUPS


class Application(Protocol):
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]: ...


@contextlib.contextmanager
def audited(app: Application, settings: AuditSettings, clock: Clock) -> Iterator[Application]:
    """The application, audited where the settings say so; what waits is written at the end."""
    if settings.path is None or settings.level is AuditLevel.NONE:
        yield app
        return
    with AuditLog(settings.path, settings.max_bytes, settings.max_backups) as log:
        yield Audited(app, log, settings.level, clock)


class Audited:
    """An ASGI application around ours."""

    def __init__(self, app: Application, log: AuditLog, level: AuditLevel, clock: Clock) -> None:
        self._app = app
        self._log = log
        self._level = level
        self._clock = clock
        self._run = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in _HEALTH:
            await self._app(scope, receive, send)
            return
        audited_request = _AuditedRequest(
            f"{self._run}-{next(self._numbers):x}", scope, self._clock
        )
        header = (b"audit-id", audited_request.id.encode())

        async def sending(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
                self._tell(audited_request, message["status"])
            await send(message)

        scope[SWITCHED] = lambda: self._tell(audited_request, 101)
        receiving = receive
        if self._level is AuditLevel.REQUEST and audited_request.keeps_body:
            receiving = audited_request.listening(receive)
        try:
            await self._app(scope, receiving, sending)
        finally:
            if not audited_request.logged:
                self._tell(audited_request, 0)  # the client left before there was an answer

    def _tell(self, audited_request: _AuditedRequest, code: int) -> None:
        audited_request.logged = True
        self._log.put(orjson.dumps(audited_request.event(self._level, code)) + b"\n")


class _AuditedRequest:
    """One request, as the log will show it."""

    def __init__(self, identifier: str, scope: Scope, clock: Clock) -> None:
        self.id = identifier
        self.logged = False
        self._scope = scope
        self._clock = clock
        self._now = clock.now()
        self._began = clock.monotonic()
        self._head = read_head(scope)
        self._route, self._verb = _target(self._head)
        self._body = bytearray()

    @property
    def keeps_body(self) -> bool:
        return self._route is not None and self._route.resource.plural not in _NEVER_BODIES

    def listening(self, receive: Receive) -> Receive:
        async def hear() -> AsgiMessage:
            message = await receive()
            if len(self._body) <= MAX_BODY_BYTES:
                self._body += message.get("body", b"")
            return message

        return hear

    def event(self, level: AuditLevel, code: int) -> Object:
        seconds = self._clock.monotonic() - self._began
        event: Object = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Request" if level is AuditLevel.REQUEST else "Metadata",
            "auditID": self.id,
            "stage": "ResponseStarted" if self._verb == "watch" else "ResponseComplete",
            "requestURI": _uri(self._scope),
            "verb": self._verb,
            "user": _user(self._scope.get(IDENTITY)),
            "sourceIPs": [(self._scope.get("client") or ("",))[0]],
            "userAgent": self._head.headers.get("user-agent", ""),
        }
        if IMPERSONATED in self._scope:
            event["impersonatedUser"] = _user(self._scope[IMPERSONATED])
        if self._route is not None:
            event["objectRef"] = _reference(self._route)
        event |= {
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": format_micro_time(self._now),
            "stageTimestamp": format_micro_time(self._now + seconds),
            "annotations": {"apiserver.latency.k8s.io/total": f"{seconds * 1000:.3f}ms"},
        }
        if self._body:
            event["requestObject"] = _shown(bytes(self._body))
        return event


class AuditLog:
    """Appends lines to a file, on a thread of its own."""

    def __init__(
        self, path: Path, max_bytes: int = MAX_FILE_BYTES, max_backups: int = MAX_BACKUPS
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_backups = max_backups
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lost = 0
        self._descriptor = _open(path)
        self._size = os.fstat(self._descriptor).st_size
        self._thread = threading.Thread(target=self._write_all, name="audit log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def put(self, line: bytes) -> None:
        """Never waits. Called from the loop's thread alone."""
        if self._waiting.qsize() >= MAX_WAITING:
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self._waiting.put(orjson.dumps({"kind": "Lost", "lines": lost}) + b"\n")
        self._waiting.put(line)

    def _write_all(self) -> None:
        ended = False
        while not ended:
            lines = [self._waiting.get()]
            with contextlib.suppress(queue.Empty):
                while len(lines) < MAX_WAITING:
                    lines.append(self._waiting.get_nowait())
            ended = lines[-1] is None
            self._write(b"".join(line for line in lines if line is not None))
        self._close()

    def _write(self, text: bytes) -> None:
        try:
            if self._size + len(text) > self._max_bytes and self._size:
                self._rotate()
            rest = memoryview(text)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            self._size += len(text)
        except OSError as failure:
            _log.error("audit log not written", path=str(self._path), why=str(failure))

    def _rotate(self) -> None:
        self._close()
        for number in range(self._max_backups - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        if self._max_backups:
            self._path.replace(self._numbered(1))
        else:
            self._path.unlink()
        self._descriptor, self._size = _open(self._path), 0

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)
        os.close(self._descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _target(head: Request) -> tuple[Route | None, str]:
    """Which object, where it is one, and the verb."""
    try:
        route = parse_route(head.path)
        return route, verb_of(head, route)
    except StatusError:
        return None, head.method.lower()


def _uri(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{scope['path']}?{query}" if query else str(scope["path"])


def _user(identity: Identity | None) -> Object:
    if identity is None:
        return {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
    return {"username": identity.name, "groups": list(identity.groups)}


def _reference(route: Route) -> Object:
    resource = route.resource
    reference = {
        "resource": resource.plural,
        "namespace": route.namespace,
        "name": route.name,
        "apiGroup": resource.group,
        "apiVersion": resource.version,
        "subresource": route.subresource,
    }
    return {key: word for key, word in reference.items() if word}


def _shown(body: bytes) -> Any:
    """The body as JSON where it is JSON and not too long."""
    if len(body) > MAX_BODY_BYTES:
        return f"left out: longer than {MAX_BODY_BYTES} bytes"
    try:
        tree = orjson.loads(body)
        encoded = orjson.dumps(tree)
    except orjson.JSONDecodeError:
        return f"left out: {len(body)} bytes that are not JSON"
    except orjson.JSONEncodeError:
        return f"left out: {len(body)} bytes of JSON that is nested too deeply"
    secret = isinstance(tree, dict) and tree.get("kind") in ("Secret", "SecretList", "List")
    return "left out: a Secret, sent to the wrong place" if secret else orjson.Fragment(encoded)
