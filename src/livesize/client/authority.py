"""The hash by which a machine that joins knows the cluster's certificate authority."""

from __future__ import annotations

import hashlib
import re

_WRITTEN = re.compile(r"sha256:[0-9a-f]{64}")


def authority_hash(pem: bytes) -> str:
    """``sha256:…`` of the authority's public key, as kubeadm writes it. Raises ValueError."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    key = x509.load_pem_x509_certificate(pem).public_key()
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def is_hash(text: str) -> bool:
    return _WRITTEN.fullmatch(text) is not None
