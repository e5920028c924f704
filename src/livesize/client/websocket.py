"""Opens a WebSocket to an API server. Only this needs aiohttp, which takes long to import.

Each WebSocket has a session of its own, which ends with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import aiohttp
from yarl import URL

from livesize.client.connections import UNIX, ConnectionIdentity, NotConnectedError, open_socket
from livesize.client.wire import LostError


class UpgradeRefusedError(Exception):
    """The server answered, but did not switch."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answered {status}")
        self.status = status


@contextlib.asynccontextmanager
async def open_websocket(
    identity: ConnectionIdentity,
    server: str,
    path: str,
    query: Sequence[tuple[str, str]],
    protocols: Sequence[str],
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Raises UpgradeRefusedError, and what livesize.client.connections raises."""
    address = "http://localhost" if server.startswith(UNIX) else server.rstrip("/")
    try:
        async with (
            _session(identity, server) as session,
            session.ws_connect(
                URL(f"{address}{path}", encoded=True).with_query(query),
                protocols=protocols,
                max_msg_size=0,
                server_hostname=identity.server_name or None,
            ) as opened,
        ):
            yield opened
    except aiohttp.WSServerHandshakeError as failure:
        raise UpgradeRefusedError(failure.status) from failure
    except aiohttp.ClientConnectorCertificateError as failure:
        raise NotConnectedError(failure.certificate_error) from failure
    except aiohttp.ClientConnectorError as failure:
        raise NotConnectedError(failure.os_error) from failure
    except aiohttp.ServerTimeoutError:
        raise  # a TimeoutError
    except aiohttp.ClientError as failure:
        raise LostError(str(failure) or type(failure).__name__) from failure


def _session(identity: ConnectionIdentity, server: str) -> aiohttp.ClientSession:
    connector: aiohttp.BaseConnector
    if server.startswith(UNIX):
        connector = aiohttp.UnixConnector(server.removeprefix(UNIX))
    else:
        # False: no TLS at all. True would be the certificates of the machine, never ours.
        tls = identity.tls if identity.tls is not None else False
        connector = aiohttp.TCPConnector(ssl=tls, socket_factory=open_socket)
    return aiohttp.ClientSession(
        connector=connector,
        headers=identity.headers,
        skip_auto_headers=("Accept-Encoding",),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(sock_connect=identity.connect_seconds),
    )
