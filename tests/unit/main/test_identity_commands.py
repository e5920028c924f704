"""`livesize token` and `cert` on a data directory: what they keep, show and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from livesize.api.roles import Role
from livesize.apiserver.auth.certificates import read_peer
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.auth.records import read_records
from livesize.apiserver.auth.tokens import Tokens
from livesize.apiserver.tls import ensure_tls
from livesize.client.kubeconfig import connection_from, write_kubeconfig
from livesize.machinery.clock import SystemClock
from livesize.machinery.data_directory import DataDirectory
from livesize.main.commands.credentials import parse_lifetime
from livesize.main.entry import cli


class Machine:
    """A data directory as `livesize up` leaves it."""

    def __init__(self, root: Path) -> None:
        self.directory = DataDirectory(root)
        self.directory.control.mkdir(parents=True)
        files = ensure_tls(self.directory.tls, [], SystemClock().now())
        ca_pem = files.ca_cert.read_bytes()
        write_kubeconfig(self.directory.kubeconfig, "https://10.0.0.1:7443", ca_pem, "t", "admin")

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--data-dir", str(self.directory.root)])

    def say(self, *words: str) -> str:
        done = self.run(*words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def identify(self, token: str) -> Identity | None:
        return Tokens(self.directory.tokens).identify(token, SystemClock().now())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "data")


def test_a_token_is_shown_once_and_kept_as_a_hash(machine: Machine) -> None:
    token = machine.say("token", "create", "ann", "--role", "editor", "--namespaces", "b,a").strip()
    assert machine.identify(token) == Identity("ann", Role.EDITOR, "", ("a", "b"))
    for file in machine.directory.control.rglob("*"):
        assert file.is_dir() or token.encode() not in file.read_bytes()
    assert token not in machine.say("token", "list")
    assert machine.directory.tokens.stat().st_mode & 0o777 == 0o600


def test_tokens_expire_unless_never_is_said(machine: Machine) -> None:
    machine.say("token", "create", "a", "--role", "viewer")
    machine.say("token", "create", "b", "--role", "viewer", "--expires", "never")
    machine.say("token", "create", "c", "--role", "viewer", "--expires", "1h")
    now = SystemClock().now()
    expires = {one.name: one.expires for one in read_records(machine.directory.tokens).tokens}
    assert expires["b"] is None
    assert expires["a"] == pytest.approx(now + 90 * 86400, abs=60)
    assert expires["c"] == pytest.approx(now + 3600, abs=60)


def test_a_node_s_token_names_it(machine: Machine) -> None:
    made = json.loads(machine.say("token", "create", "--role", "node:n1", "-o", "json"))
    assert machine.identify(made["token"]) == node_identity("n1")


def test_for_programs(machine: Machine) -> None:
    assert machine.say("token", "create", "a", "--role", "viewer", "-o", "name") == "a\n"
    made = yaml.safe_load(machine.say("token", "create", "b", "--role", "viewer", "-o", "yaml"))
    assert set(made) == {"name", "role", "expires", "token"}
    assert machine.say("token", "list", "-o", "name").split() == ["a", "b"]
    join = machine.say("token", "create", "--join", "-o", "name").strip()
    assert machine.say("token", "list", "-o", "name").split() == ["a", "b", join]
    machine.say("token", "revoke", join)
    machine.say("token", "revoke", "a")
    assert json.loads(machine.say("token", "list", "-o", "json"))[0]["name"] == "b"


def test_a_kubeconfig_with_a_token(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "ann.kubeconfig"
    printed = machine.say("token", "create", "ann", "--role", "admin", "--kubeconfig", str(file))
    connection = connection_from(file)
    assert connection.token not in printed
    assert machine.identify(connection.token) == Identity("ann", Role.ADMIN)
    assert (connection.server, file.stat().st_mode & 0o777) == ("https://10.0.0.1:7443", 0o600)


def test_a_certificate_with_its_kubeconfig(machine: Machine, tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    longest = "n" * 63
    where = ["--directory", str(tmp_path), "--server", "https://there:1"]
    machine.say("cert", "create", "ann", "--role", "viewer", "--namespaces", longest, *where)
    connection = connection_from(tmp_path / "ann.kubeconfig")
    assert connection.server == "https://there:1"
    assert connection.client_certificate_pem == (tmp_path / "ann.crt").read_bytes()
    assert connection.client_key_pem == (tmp_path / "ann.key").read_bytes()
    assert (tmp_path / "ann.key").stat().st_mode & 0o777 == 0o600
    certificate = x509.load_pem_x509_certificate(connection.client_certificate_pem)
    peer = read_peer(certificate.public_bytes(Encoding.DER))
    assert peer is not None
    assert peer.identity == Identity("ann", Role.VIEWER, "", (longest,))
    (row,) = json.loads(machine.say("cert", "list", "-o", "json"))
    assert (row["serial"], row["revoked"]) == (peer.serial, False)
    machine.say("cert", "revoke", peer.serial)
    assert "yes" in machine.say("cert", "list")


REFUSED: list[tuple[list[str], int, str]] = [
    (["token", "create", "a", "--role", "root"], 2, "there is no role 'root'"),
    (["token", "create", "a"], 2, "--role editor"),
    (["token", "create", "--role", "editor"], 2, "whose token"),
    (["token", "create", "a", "--role", "admin", "--namespaces", "x"], 2, "only an editor"),
    (["token", "create", "a", "--role", "editor", "--namespaces", "X!"], 2, "a namespace"),
    (["token", "create", "--role", "node:n1", "--namespaces", "x"], 2, "its own pods"),
    (["token", "create", "--role", "node:N_1"], 2, "name of a node"),
    (["token", "create", "system:node:x", "--role", "admin"], 2, "only a node"),
    (["token", "create", "a", "--role", "viewer", "--expires", "soon"], 2, "30d, 12h"),
    (["token", "create", "--join", "--expires", "never"], 2, "must expire"),
    (["token", "create", "--join", "--role", "viewer"], 2, "who joins is a node"),
    (["token", "create", "x", "--join"], 2, "--join goes with"),
    (["token", "revoke", "nobody"], 1, "there is no token of nobody"),
    (["token", "revoke", "admin"], 1, "kept by `livesize up`"),
    (["cert", "create", "../a", "--role", "viewer"], 2, "the name of files"),
    (["cert", "create", "a", "--role", "viewer", "--expires", "never"], 2, "must expire"),
    (["cert", "revoke", "nobody"], 1, "there is no certificate of nobody"),
    (["join", "http://x", "--token", "t", "--ca-hash", "sha256:0"], 2, "no https://"),
    (["join", "https://x", "--token", "t", "--ca-hash", "md5:0"], 2, "64 hexadecimal"),
]


@pytest.mark.parametrize(("words", "code", "sentence"), REFUSED)
def test_what_makes_no_sense_is_one_sentence(
    machine: Machine, words: list[str], code: int, sentence: str
) -> None:
    refused = machine.run(*words)
    assert refused.exit_code == code, refused.output
    assert sentence in refused.output
    assert not machine.directory.tokens.exists() or not any(
        [(records := read_records(machine.directory.tokens)).tokens, records.joins]
    )


def test_a_name_is_taken_once(machine: Machine) -> None:
    machine.say("token", "create", "ann", "--role", "viewer")
    again = machine.run("token", "create", "ann", "--role", "viewer")
    assert (again.exit_code, "revoke it first" in again.output) == (1, True)


def test_without_a_data_directory(tmp_path: Path) -> None:
    words: list[Any] = ["token", "create", "a", "--role", "viewer", "--data-dir", tmp_path / "no"]
    refused = CliRunner().invoke(cli, [str(word) for word in words])
    assert (refused.exit_code, "start `livesize up` once" in refused.output) == (1, True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2592000), ("12h", 43200), ("90m", 5400), ("45s", 45)]
)
def test_lifetimes(text: str, seconds: int) -> None:
    assert parse_lifetime(text) == seconds


def test_an_address_nobody_else_reaches_is_told(machine: Machine) -> None:
    there = machine.run("token", "create", "--join")
    assert there.stderr == ""
    here = machine.run("token", "create", "--join", "--server", "https://127.0.0.1:7443")
    assert "from this machine only" in here.stderr
    assert here.stdout.startswith("livesize join https://127.0.0.1:7443 --token ")
