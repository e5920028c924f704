"""Client certificates of our own authority: making them, signing requests, reading a peer's.

CN is the user, O are groups (livesize.apiserver.auth.identities says which mean a role). Only keys
that can be trusted are signed: P-256, P-384, Ed25519, or RSA of 2048 bits and more.
"""

from __future__ import annotations

import datetime as dt
import functools
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity, identity_of_groups, role_groups
from livesize.apiserver.auth.records import CertificateEntry
from livesize.client.authority import authority_hash

_BACKDATED = dt.timedelta(minutes=5)  # clocks of servers differ a little
_RSA_BITS = 2048


class RequestRefusedError(ValueError):
    """A certificate request that is not signed; the sentence says why."""


class ClientCertificate(msgspec.Struct, frozen=True):
    """What a verified client certificate says."""

    identity: Identity | None
    serial: str
    expires: float


class Authority:
    """Signs with the cluster's key in ``folder`` (livesize.apiserver.tls makes it)."""

    def __init__(self, folder: Path) -> None:
        self.cert_pem = (folder / "ca.crt").read_bytes()
        self._cert = x509.load_pem_x509_certificate(self.cert_pem)
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    @property
    def hash(self) -> str:
        return authority_hash(self.cert_pem)

    def sign(
        self,
        identity: Identity,
        key: _PublicKey,
        now: float,
        seconds: float,
        further_groups: tuple[str, ...] = (),
    ) -> tuple[bytes, CertificateEntry]:
        """A client certificate, and the entry to keep of it. ``further_groups`` are no roles."""
        moment = dt.datetime.fromtimestamp(int(now), tz=dt.UTC)
        end = min(moment + dt.timedelta(seconds=int(seconds)), self._cert.not_valid_after_utc)
        groups = (*role_groups(identity.role, identity.namespaces), *further_groups)
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        serial = x509.random_serial_number()
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(
                x509.Name([*subject, x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
            )
            .issuer_name(self._cert.subject)
            .public_key(key)
            .serial_number(serial)
            .not_valid_before(moment - _BACKDATED)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_uses(identity)), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        entry = CertificateEntry(
            identity.name,
            identity.role,
            f"{serial:x}",
            end.timestamp(),
            identity.node,
            identity.namespaces,
        )
        return certificate.public_bytes(serialization.Encoding.PEM), entry

    def issue(
        self,
        identity: Identity,
        now: float,
        seconds: float,
        further_groups: tuple[str, ...] = (),
    ) -> tuple[bytes, bytes, CertificateEntry]:
        """A certificate with a key of its own: certificate, key, entry."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, entry = self.sign(identity, key.public_key(), now, seconds, further_groups)
        return certificate, key_bytes(key), entry


_PublicKey = (
    ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey
)  # what read_request lets through


def _uses(identity: Identity) -> list[x509.ObjectIdentifier]:
    """A node is also asked: for the logs of its pods (livesize.agent.endpoint)."""
    also = [ExtendedKeyUsageOID.SERVER_AUTH] if identity.role is Role.NODE else []
    return [ExtendedKeyUsageOID.CLIENT_AUTH, *also]


def read_request(pem: bytes) -> _PublicKey:
    """The key of a certificate request that is signed with it; its names do not count."""
    try:
        request = x509.load_pem_x509_csr(pem)
        valid = request.is_signature_valid
        key = request.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RequestRefusedError(f"this is no certificate request: {error}") from error
    if not valid:
        raise RequestRefusedError("the certificate request is not signed with its own key")
    match key:
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
            return key
        case ed25519.Ed25519PublicKey():
            return key
        case rsa.RSAPublicKey() if key.key_size >= _RSA_BITS:
            return key
        case _:
            raise RequestRefusedError(
                "the key must be P-256, P-384, Ed25519, or RSA of at least 2048 bits"
            )


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@functools.lru_cache(maxsize=1024)
def read_peer(der: bytes) -> ClientCertificate | None:
    """None for what is no certificate. Read once for each certificate, not for each request."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    except ValueError:
        return None
    groups = [str(one.value) for one in organizations]
    identity = identity_of_groups(str(names[0].value), groups) if len(names) == 1 else None
    expires = certificate.not_valid_after_utc.timestamp()
    return ClientCertificate(identity, f"{certificate.serial_number:x}", expires)
