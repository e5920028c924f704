"""Makes this machine a node: a certificate for a one-time token, and the next before it expires.

``join`` reads the authority's certificate over a connection that proves nothing, and compares its
hash with the one given. Only then, over a connection that the authority has proven, it sends the
token. The key never leaves this machine.

``maintain_certificate`` is a task of the agent: when two thirds of the certificate's life are over,
it gets the next one, writes the kubeconfig anew, and gives it to the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from livesize.api.errors import StatusError
from livesize.client.authority import authority_hash
from livesize.client.http import ConnectionConfig, HttpClient, ServerUnreachableError, with_servers
from livesize.client.kubeconfig import connection_from, write_certificate_kubeconfig
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger

_log = get_logger("client.node_join")

CA_PATH = "/livesize/v1/ca"
JOIN_PATH = "/livesize/v1/join"
RENEW_PATH = "/livesize/v1/renew"
RENEW_AFTER = 2 / 3
RETRY_SECONDS = 60.0
LONGEST_SLEEP_SECONDS = 3600.0
"""A clock that is set, or a machine that slept, is noticed by then."""


class JoinError(Exception):
    """This machine does not join; the sentence says why."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    ca_hash: str
    token: str
    node: str


async def join(request: JoinRequest, clock: Clock) -> ConnectionConfig:
    """How the node reaches the server from now on. Raises JoinError; StatusError for a refusal."""
    ca_pem = await _authority(request, clock)
    key = ec.generate_private_key(ec.SECP256R1())
    config = ConnectionConfig(server=request.server, ca_pem=ca_pem, token=request.token)
    body = {"node": request.node, "request": _signing_request(request.node, key)}
    try:
        certificate = await _submit(config, JOIN_PATH, body, clock)
    except ServerUnreachableError as failure:
        raise JoinError(str(failure)) from failure
    return ConnectionConfig(
        server=request.server,
        ca_pem=ca_pem,
        client_certificate_pem=certificate,
        client_key_pem=_key_pem(key),
    )


async def renew(
    config: ConnectionConfig, clock: Clock, servers: Sequence[str] = ()
) -> ConnectionConfig:
    """The same node with its next certificate, and a key of its own. ``servers`` are asked instead
    of the one that ``config`` names."""
    key = ec.generate_private_key(ec.SECP256R1())
    body = {"request": _signing_request(node_of(config), key)}
    reachable = with_servers(config, servers) if servers else config
    certificate = await _submit(reachable, RENEW_PATH, body, clock)
    return msgspec.structs.replace(
        config, client_certificate_pem=certificate, client_key_pem=_key_pem(key)
    )


def write_node_kubeconfig(path: Path, config: ConnectionConfig) -> None:
    pair = (config.client_certificate_pem, config.client_key_pem)
    user = f"system:node:{node_of(config)}"
    write_certificate_kubeconfig(path, config.server, config.ca_pem, pair, user)


def node_of(config: ConnectionConfig) -> str:
    """The node a certificate is for."""
    certificate = x509.load_pem_x509_certificate(config.client_certificate_pem)
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value).removeprefix("system:node:")


def renewal_time(config: ConnectionConfig) -> float:
    """When the next certificate is due, seconds since the epoch."""
    certificate = x509.load_pem_x509_certificate(config.client_certificate_pem)
    begin = certificate.not_valid_before_utc.timestamp()
    end = certificate.not_valid_after_utc.timestamp()
    return begin + (end - begin) * RENEW_AFTER


async def maintain_certificate(kubeconfig: Path, client: HttpClient, clock: Clock) -> None:
    """Runs until cancelled. It tries again every minute where the server does not answer."""
    while True:
        config = connection_from(kubeconfig)
        due = renewal_time(config) - clock.now()
        if due > 0:
            await clock.sleep(min(due, LONGEST_SLEEP_SECONDS))
            continue
        try:
            fresh = await renew(config, clock, client.servers)
        except (ServerUnreachableError, StatusError) as failure:
            _log.warning("certificate not renewed, trying again", why=str(failure))
            await clock.sleep(RETRY_SECONDS)
            continue
        write_node_kubeconfig(kubeconfig, fresh)
        _log.info("certificate renewed", node=node_of(fresh))
        await client.become(fresh, clock)


async def _authority(request: JoinRequest, clock: Clock) -> bytes:
    unproven = ConnectionConfig(server=request.server, skip_verification=True)
    client = await HttpClient.open(unproven, clock)
    try:
        answer = await client.ask(CA_PATH)
    except ServerUnreachableError as failure:
        raise JoinError(str(failure)) from failure
    finally:
        await client.close()
    ca_pem = str(answer).encode()
    try:
        found = authority_hash(ca_pem)
    except ValueError as failure:
        raise JoinError(f"{request.server} did not answer with a certificate") from failure
    if found != request.ca_hash:
        raise JoinError(
            f"{request.server} is not the cluster you mean: its authority has the hash {found},"
            f" not {request.ca_hash}; the token was not sent"
        )
    return ca_pem


async def _submit(config: ConnectionConfig, path: str, body: dict[str, str], clock: Clock) -> bytes:
    client = await HttpClient.open(config, clock)
    try:
        answer = await client.submit(path, body)
    finally:
        await client.close()
    return str(answer.get("certificate", "")).encode()


def _signing_request(node: str, key: ec.EllipticCurvePrivateKey) -> str:
    names = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    signed = builder.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
