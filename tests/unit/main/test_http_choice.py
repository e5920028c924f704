"""granian is refused where it would lock somebody out who comes in by a certificate."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from livesize.api.roles import Role
from livesize.apiserver.auth.records import (
    CertificateEntry,
    CredentialRecords,
    JoinEntry,
    write_records,
)
from livesize.machinery.data_directory import DataDirectory
from livesize.main.entry import cli
from livesize.main.wiring.apiserver_setup import check_http

NOW = 1_000.0


def certificate(name: str, *, expires: float = 2_000, revoked: bool = False) -> CertificateEntry:
    return CertificateEntry(name, Role.VIEWER, "ab", expires, revoked=revoked)


@pytest.mark.parametrize(
    ("records", "names"),
    [
        (CredentialRecords(), None),
        (CredentialRecords(certificates=(certificate("old", expires=999),)), None),
        (CredentialRecords(certificates=(certificate("gone", revoked=True),)), None),
        (CredentialRecords(joins=(JoinEntry("join-1", "hash", 999),)), None),
        (CredentialRecords(joins=(JoinEntry("join-1", "hash", 2_000),)), "join-1;"),
        (
            CredentialRecords(certificates=tuple(certificate(name) for name in "edcbaa")),
            "a, b, c and 2 more;",
        ),
    ],
)
def test_who_would_be_locked_out(
    tmp_path: Path, records: CredentialRecords, names: str | None
) -> None:
    write_records(tmp_path / "tokens", records)
    check_http("uvicorn", tmp_path / "tokens", NOW)
    if names is None:
        check_http("granian", tmp_path / "tokens", NOW)
        return
    with pytest.raises(click.ClickException) as refusal:
        check_http("granian", tmp_path / "tokens", NOW)
    assert f"come in by one: {names}" in refusal.value.message
    assert "livesize cert revoke" in refusal.value.message


def test_a_first_start_and_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    check_http("granian", tmp_path / "tokens", NOW)
    (tmp_path / "tokens").write_text("{")
    with pytest.raises(click.ClickException, match="cannot be read"):
        check_http("granian", tmp_path / "tokens", NOW)


def test_up_says_so_and_starts_nothing(tmp_path: Path) -> None:
    tokens = DataDirectory(tmp_path).tokens
    tokens.parent.mkdir()
    write_records(tokens, CredentialRecords(certificates=(certificate("ann", expires=4e9),)))
    words = ["up", "--runtime", "fake", "--http", "granian", "--listen", "127.0.0.1:0"]
    result = CliRunner().invoke(cli, [*words, "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "--http granian cannot see client certificates" in result.output
    assert "ann" in result.output
    assert not (tmp_path / "lock").exists()
