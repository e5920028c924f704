"""Lets a machine become a node: a one-time token for a first certificate, that one for the next.

GET  /livesize/v1/ca      the cluster's authority, for anybody: who joins knows its hash
POST /livesize/v1/join    with a join token; {"node": NAME, "request": PEM} → a certificate
POST /livesize/v1/renew   with a node's certificate (or token); {"request": PEM} → the next one

The token is gone, durably, before the certificate leaves: a crash in between costs a new token,
never lets two in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from livesize.api.errors import (
    StatusError,
    bad_request,
    forbidden,
    method_not_allowed,
)
from livesize.api.kinds.node import NODES
from livesize.api.roles import Role
from livesize.api.times import format_time
from livesize.api.validation.names import LABEL_LENGTH, DnsRule, name_problems
from livesize.apiserver.auth.certificates import Authority, RequestRefusedError, read_request
from livesize.apiserver.auth.identities import NODE_USER, Identity, node_identity
from livesize.apiserver.auth.records import (
    CertificateEntry,
    CredentialRecords,
    JoinEntry,
    change_records,
    without_expired,
)
from livesize.apiserver.auth.tokens import Tokens, hash_token
from livesize.apiserver.http.bodies import decode_json
from livesize.apiserver.http.requests import Request
from livesize.apiserver.http.responses import Response, json_answer
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.machinery.clock import Clock

CA_PATH = "/livesize/v1/ca"
JOIN_PATH = "/livesize/v1/join"
RENEW_PATH = "/livesize/v1/renew"
MAX_COMMON_NAME = 64
NODE_CERTIFICATE_SECONDS = 30 * 86400.0
_PEM = b"application/x-pem-file"


class NodeJoin:
    def __init__(
        self,
        authority: Authority,
        tokens: Tokens,
        cache: ObjectsCache,
        clock: Clock,
        certificate_seconds: float = NODE_CERTIFICATE_SECONDS,
        *,
        sees_certificates: bool = True,
    ) -> None:
        """``sees_certificates``: whether the web server shows who has proven to be whom."""
        self._authority = authority
        self._tokens = tokens
        self._records = tokens.path
        self._cache = cache
        self._clock = clock
        self._seconds = certificate_seconds
        self._sees_certificates = sees_certificates

    def authority(self) -> Response:
        return Response(200, self._authority.cert_pem, _PEM)

    def admit(self, head: Request) -> None:
        """Raises 401 for a token that is not, or no longer, good, before any more is read."""
        self._require_useful()
        if not self._tokens.is_join_token(head.bearer, self._clock.now()):
            raise _bad_token()

    async def join(self, request: Request) -> tuple[Identity, Response]:
        """Who has joined, and what they get."""
        body = _body(request)
        node = body.get("node")
        if not isinstance(node, str) or not _is_node_name(node):
            raise bad_request(f"node: {node!r} cannot be the name of a node")
        key = _key(body)
        await self._cache.fresh()
        known = self._cache.get(NODES, key_of(NODES, "", node)) is not None
        now, hashed = self._clock.now(), hash_token(request.bearer)
        identity = node_identity(node)

        def take(records: CredentialRecords) -> tuple[CredentialRecords, bytes]:
            entry = _good_token(records, hashed, now)
            given = [one for one in records.certificates if one.name == identity.name]
            taken = any(not one.revoked and one.expires > now for one in given)
            _check_name(entry, node, known=known or taken)
            certificate, issued = self._authority.sign(identity, key, now, self._seconds)
            # The name is this machine's from now on, and no other's.
            rest = tuple(one for one in records.joins if one.hash != hashed and one.node != node)
            certificates = (*_revoked(records.certificates, identity.name), issued)
            return without_expired(
                CredentialRecords(records.tokens, rest, certificates), now
            ), certificate

        certificate = await asyncio.to_thread(change_records, self._records, take)
        return identity, self._certificate(certificate)

    async def renew(self, identity: Identity, request: Request) -> Response:
        """The next certificate of a node, for itself only."""
        if identity.role is not Role.NODE:
            raise forbidden(NODES, "", f'User "{identity.name}" is no node')
        self._require_useful()
        key, now = _key(_body(request)), self._clock.now()

        def add(records: CredentialRecords) -> tuple[CredentialRecords, bytes]:
            certificate, issued = self._authority.sign(identity, key, now, self._seconds)
            after = msgspec.structs.replace(records, certificates=(*records.certificates, issued))
            return without_expired(after, now), certificate

        return self._certificate(await asyncio.to_thread(change_records, self._records, add))

    def _require_useful(self) -> None:
        """A certificate that could not be used must not cost a token."""
        if not self._sees_certificates:
            raise StatusError(
                403,
                "Forbidden",
                "this server cannot let nodes in by certificate: its web server, granian, does not"
                " show it any; start it with --http uvicorn",
            )

    def _certificate(self, certificate: bytes) -> Response:
        until = format_time(self._clock.now() + self._seconds)
        return json_answer({"certificate": certificate.decode(), "expires": until}, 201)


def _body(request: Request) -> dict[str, Any]:
    if request.method != "POST":
        raise method_not_allowed()
    body = decode_json(request.body)
    if not isinstance(body, dict):
        raise bad_request("the body must be an object")
    return body


def _key(body: dict[str, Any]) -> Any:
    text = body.get("request")
    if not isinstance(text, str):
        raise bad_request("request: the certificate request, PEM, is missing")
    try:
        return read_request(text.encode())
    except RequestRefusedError as refusal:
        raise bad_request(f"request: {refusal}") from refusal


def _is_node_name(name: str) -> bool:
    """Also short enough for a certificate, with what stands before it."""
    length = min(LABEL_LENGTH, MAX_COMMON_NAME - len(NODE_USER))
    return len(name) <= length and not name_problems(name, DnsRule.SUBDOMAIN)


def _revoked(entries: Sequence[CertificateEntry], name: str) -> list[CertificateEntry]:
    """The entries, those of a name revoked: who had it before is another machine, or is gone."""
    return [
        msgspec.structs.replace(one, revoked=True) if one.name == name else one for one in entries
    ]


def _good_token(records: CredentialRecords, hashed: str, now: float) -> JoinEntry:
    for entry in records.joins:
        if entry.hash == hashed and entry.expires > now:
            return entry
    raise _bad_token()


def _bad_token() -> StatusError:
    return StatusError(
        401,
        "Unauthorized",
        "the join token is not good: it was used already, has expired, or was mistyped;"
        " make another with `livesize token create --join`",
    )


def _check_name(entry: JoinEntry, node: str, *, known: bool) -> None:
    """A token for any node brings a new one; it cannot take the place of one that is there."""
    if entry.node and entry.node != node:
        raise forbidden(NODES, node, f'this join token is for the node "{entry.node}" only')
    if known and not entry.node:
        raise forbidden(
            NODES,
            node,
            "there is a node of this name, or one has joined by it; choose another, or make a join"
            f" token for it with `livesize token create --join --role node:{node}`",
        )
