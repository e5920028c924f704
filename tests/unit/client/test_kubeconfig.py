"""Kubeconfig files: which one counts, what is read from it, and what we write."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from livesize.client.kubeconfig import (
    KubeconfigError,
    candidates,
    connection_from,
    find_kubeconfig,
    namespace_from,
    write_kubeconfig,
)

HOME = Path("/home/someone")
ALL = {"LIVESIZE_KUBECONFIG": "/l", "KUBECONFIG": "/k:/k2", "LIVESIZE_DATA_DIR": "/data"}


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        (ALL, "/given", ["/given"]),
        (ALL, "", ["/l"]),
        ({**ALL, "LIVESIZE_KUBECONFIG": ""}, "", ["/k", "/k2"]),
        ({"LIVESIZE_DATA_DIR": "/data"}, "", ["/data/kubeconfig", "/home/someone/.kube/config"]),
        (
            {},
            "",
            [
                "/home/someone/.local/share/livesize/kubeconfig",
                "/var/lib/livesize/kubeconfig",
                "/home/someone/.kube/config",
            ],
        ),
    ],
    ids=["named", "ours", "kubectl's", "data directory", "defaults"],
)
def test_what_is_said_more_closely_counts(
    environment: dict[str, str], given: str, expected: list[str]
) -> None:
    assert [str(path) for path in candidates(environment, HOME, given)] == expected


def test_a_missing_file_says_where_it_was_looked_for_and_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"nowhere.*livesize up"):
        find_kubeconfig(str(tmp_path / "nowhere"), {})


def test_what_is_written_is_read_back_and_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kubeconfig"
    write_kubeconfig(path, "https://127.0.0.1:7443", b"CA PEM", "a-token", "admin")
    write_kubeconfig(path, "https://127.0.0.1:7444", b"CA PEM", "a-token", "admin")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["kubeconfig"]
    config = connection_from(path)
    assert (config.server, config.ca_pem, config.token) == (
        "https://127.0.0.1:7444",
        b"CA PEM",
        "a-token",
    )
    assert namespace_from(path) == "default"
    assert json.loads(path.read_text()) == yaml.safe_load(path.read_text()), "quick to read"


def kubeconfig(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = tmp_path / "config"
    context = {"cluster": "c", "user": "u", "namespace": "team"}
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://s", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_files_are_found_beside_the_kubeconfig_and_inline_data_wins(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"ca from file")
    (tmp_path / "me.pem").write_bytes(b"me from file")
    (tmp_path / "token").write_text("token from file\n")
    cluster = {"certificate-authority": "ca.pem", "tls-server-name": "api"}
    user = {
        "client-certificate": "me.pem",
        "client-key": "me.pem",
        "client-key-data": base64.b64encode(b"inline").decode(),
        "tokenFile": "token",
    }
    config = connection_from(kubeconfig(tmp_path, cluster, user))
    assert config.ca_pem == b"ca from file"
    assert config.client_certificate_pem == b"me from file"
    assert config.client_key_pem == b"inline"
    assert config.token == "token from file"
    assert config.server_name == "api"
    assert namespace_from(tmp_path / "config") == "team"


@pytest.mark.parametrize(
    ("cluster", "user", "sentence"),
    [
        ({"certificate-authority-data": "%%"}, {}, "not base64"),
        ({"certificate-authority": "missing.pem"}, {}, "missing.pem"),
        ({"server": ""}, {}, "no server"),
        ({}, {"exec": {"command": "aws"}}, "exec"),
    ],
)
def test_what_cannot_be_used_is_said(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(KubeconfigError, match=sentence):
        connection_from(kubeconfig(tmp_path, cluster, user))


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "contexts: []", "current-context: gone"])
def test_a_broken_file_is_no_traceback(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match="config"):
        connection_from(path)
