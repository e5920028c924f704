"""The certificates: what they say, that they last, and when they are made again."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from livesize.apiserver.tls import RENEW_BEFORE_DAYS, SERVING_DAYS, _addresses, ensure_tls

NOW = 1_700_000_000.0
DAY = 86_400.0


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def test_made_once_and_private(tmp_path: Path) -> None:
    files = ensure_tls(tmp_path / "tls", ["10.0.0.7", "api.example"], NOW)
    for path in (tmp_path / "tls").iterdir():
        assert path.stat().st_mode & 0o077 == 0
    cert = x509.load_pem_x509_certificate(files.cert.read_bytes())
    ca = x509.load_pem_x509_certificate(files.ca_cert.read_bytes())
    cert.verify_directly_issued_by(ca)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "api.example"} <= set(names.get_values_for_type(x509.DNSName))
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "::1", "10.0.0.7"}
    before = serial(files.cert), serial(files.ca_cert)
    again = ensure_tls(tmp_path / "tls", ["10.0.0.7"], NOW + DAY)
    assert (serial(again.cert), serial(again.ca_cert)) == before


def test_made_again_near_the_end_for_new_names_and_after_a_crash(tmp_path: Path) -> None:
    first = ensure_tls(tmp_path, [], NOW)
    authority, serving = serial(first.ca_cert), serial(first.cert)
    late = NOW + (SERVING_DAYS - RENEW_BEFORE_DAYS + 1) * DAY
    renewed = serial(ensure_tls(tmp_path, [], late).cert)
    assert renewed != serving
    named = ensure_tls(tmp_path, ["new.example"], late)
    assert serial(named.cert) != renewed
    assert serial(named.ca_cert) == authority
    other = ensure_tls(tmp_path / "other", [], NOW)
    named.key.write_bytes(other.key.read_bytes())
    mended = ensure_tls(tmp_path, ["new.example"], late)
    assert mended.key.read_bytes() != other.key.read_bytes()


def test_one_that_listens_everywhere_is_known_by_its_own_address(tmp_path: Path) -> None:
    files = ensure_tls(tmp_path, ["0.0.0.0"], NOW)
    cert = x509.load_pem_x509_certificate(files.cert.read_bytes())
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    carried = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert carried == {"127.0.0.1", "::1", "0.0.0.0", *_addresses(["0.0.0.0"])}
    assert _addresses(["10.0.0.7", "localhost"]) == set()
