"""Off the loopback editors bring no programs to the machine itself, unless the admin says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from livesize.main.wiring.apiserver import trusts_editors
from livesize.main.wiring.apiserver_setup import ApiServerOptions


@pytest.mark.parametrize(
    ("host", "told", "trusted"),
    [
        ("127.0.0.1", False, True),
        ("127.1.2.3", False, True),
        ("::1", False, True),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("192.0.2.1", False, False),
        ("fe80::1%eth0", False, False),
        ("0.0.0.0", True, True),
    ],
)
def test_who_is_trusted(host: str, told: bool, trusted: bool) -> None:
    options = ApiServerOptions(data_dir=Path("/x"), listen=f"{host}:7443", trust_editors=told)
    assert trusts_editors(options.apiserver_settings(), host) is trusted
