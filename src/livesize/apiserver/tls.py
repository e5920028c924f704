"""The cluster's certificate authority and the API server's serving certificate.

Made once, kept in files only their owner can read, reused after a restart. The serving
certificate is made again when it is near its end or when the names it must carry have changed;
the authority stays, so that clients which trust it go on doing so.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
SERVING_DAYS = 365
RENEW_BEFORE_DAYS = 30
_BACKDATED = dt.timedelta(minutes=5)  # clocks of clients differ a little


class TlsFiles(msgspec.Struct, frozen=True):
    ca_cert: Path
    cert: Path
    key: Path


def ensure_tls(folder: Path, hosts: Sequence[str], now: float) -> TlsFiles:
    """Make what is missing or too old in ``folder``; ``hosts`` are names or addresses to serve."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    moment = dt.datetime.fromtimestamp(now, tz=dt.UTC)
    ca_cert, ca_key = _ensure_ca(folder, moment)
    files = TlsFiles(folder / "ca.crt", folder / "apiserver.crt", folder / "apiserver.key")
    names = sorted({*hosts, *_own_names(), *_addresses(hosts)})
    if not _still_good(files, ca_cert, names, moment):
        _make_serving(files, ca_cert, ca_key, names, moment)
    return files


def _own_names() -> set[str]:
    return {"localhost", "127.0.0.1", "::1", "kubernetes", socket.gethostname()}


def _addresses(hosts: Iterable[str]) -> set[str]:
    """By which other machines reach one that listens on all its addresses."""
    everywhere = {"0.0.0.0": (socket.AF_INET, "192.0.2.1"), "::": (socket.AF_INET6, "2001:db8::1")}  # noqa: S104
    found = set()
    for family, elsewhere in {everywhere[host] for host in hosts if host in everywhere}:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))  # nothing is sent: the kernel picks our own address
            found.add(str(probe.getsockname()[0]))
    return found


def _ensure_ca(
    folder: Path, now: dt.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    cert_path, key_path = folder / "ca.crt", folder / "ca.key"
    if cert_path.exists() and key_path.exists():
        cert = x509.load_pem_x509_certificate(cert_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey) and _lasts(cert, now):
            return cert, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "livesize-ca")])
    cert = (
        _certificate(name, name, key, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_ca_usage(), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_private(key_path, _key_bytes(key))
    _write_private(cert_path, cert.public_bytes(serialization.Encoding.PEM))
    return cert, key


def _make_serving(
    files: TlsFiles,
    ca_cert: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    names: list[str],
    now: dt.datetime,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "livesize-apiserver")])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    cert = (
        _certificate(subject, ca_cert.subject, key, now, SERVING_DAYS)
        .add_extension(x509.SubjectAlternativeName([_general(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    _write_private(files.key, _key_bytes(key))
    _write_private(files.cert, cert.public_bytes(serialization.Encoding.PEM))


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    days: int,
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(identifier, critical=False)
    )


def _ca_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _still_good(
    files: TlsFiles, ca_cert: x509.Certificate, names: list[str], now: dt.datetime
) -> bool:
    if not (files.cert.exists() and files.key.exists()):
        return False
    cert = x509.load_pem_x509_certificate(files.cert.read_bytes())
    carried = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if {_general(name) for name in names} - set(carried) or not _lasts(cert, now):
        return False
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    if key.public_key() != cert.public_key():
        return False  # a crash between the two files
    try:
        cert.verify_directly_issued_by(ca_cert)
    except Exception:  # noqa: BLE001 - whatever does not verify is made again
        return False
    return True


def _lasts(cert: x509.Certificate, now: dt.datetime) -> bool:
    return cert.not_valid_after_utc - now > dt.timedelta(days=RENEW_BEFORE_DAYS)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write_private(path: Path, content: bytes) -> None:
    replacement = path.with_name(path.name + ".new")
    replacement.unlink(missing_ok=True)
    descriptor = os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(path)
