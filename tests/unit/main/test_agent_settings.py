"""Which node an agent is, and at which address: by its certificate, and the way to the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from livesize.apiserver.auth.certificates import Authority
from livesize.apiserver.auth.identities import node_identity
from livesize.apiserver.tls import ensure_tls
from livesize.client.kubeconfig import write_certificate_kubeconfig
from livesize.machinery.clock import SystemClock
from livesize.main.entry import cli
from livesize.main.wiring.agent_process import _address_towards


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    now = SystemClock().now()
    ensure_tls(tmp_path / "tls", ["127.0.0.1"], now)
    authority = Authority(tmp_path / "tls")
    certificate, key, _ = authority.issue(node_identity("worker-1"), now, 3600)
    path = tmp_path / "kubeconfig"
    server = "https://127.0.0.1:1"
    write_certificate_kubeconfig(path, server, authority.cert_pem, (certificate, key), "worker-1")
    return path


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--node-name", "worker-2"], "this machine has joined as worker-1, not as worker-2"),
        (["--server", "10.0.0.1:7443"], "'10.0.0.1:7443' is not https://HOST:PORT"),
        (["--server", "https://a:1,http://b:1"], "'http://b:1' is not https://HOST:PORT"),
    ],
)
def test_what_contradicts_the_certificate_or_cannot_be_asked_is_refused(
    kubeconfig: Path, tmp_path: Path, words: list[str], why: str
) -> None:
    data = str(tmp_path / "data")
    given = ["agent", "--runtime", "fake", "--kubeconfig", str(kubeconfig), "--data-dir", data]
    done = CliRunner().invoke(cli, [*given, *words])
    assert done.exit_code == 2
    assert why in done.output
    assert not Path(data).exists(), "nothing was started"


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("https://127.0.0.1:7443", "127.0.0.1"),
        ("https://[::1]:7443", "::1"),
        ("https://no-such-host.invalid:7443", "127.0.0.1"),
    ],
)
def test_the_address_is_the_one_on_the_way_to_the_server(server: str, address: str) -> None:
    assert _address_towards(server) == address
