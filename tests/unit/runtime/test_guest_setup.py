"""scripts/setup makes the source of QEMU 10 from the machine's own apt sources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[3] / "scripts" / "setup"
KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://mirror.example/debian"

DEB822 = f"""\
Types: deb deb-src
# a remark
URIs: {MIRROR}
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: {KEY}

Types: deb
URIs: {MIRROR}-security
Suites: bookworm-security
Components: main
"""
ONE_LINE = f"""\
# deb http://old.example/debian bookworm main
deb-src {MIRROR} bookworm main
deb [arch=amd64,i386 signed-by={KEY}] {MIRROR} bookworm main contrib # remark
"""
WANTED = {"Types": "deb", "Uris": MIRROR, "Suites": "bookworm-backports", "Components": "main"}


def backports_source(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    function = re.search(
        r"^backports_source\(\).*?^\}$", SETUP.read_text(), re.DOTALL | re.MULTILINE
    )
    assert function is not None
    script = f'PYTHON={sys.executable}\n{function[0]}\nbackports_source bookworm "$@"'
    paths = [str(folder / name) for name in files]
    command = ["bash", "-eu", "-c", script, "setup", *paths]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def fields(text: str) -> dict[str, str]:
    pairs = re.findall(r"^([\w-]+):(.*(?:\n .*)*)", text, re.MULTILINE)
    return {name: value.strip() for name, value in pairs}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("a.sources", DEB822, {**WANTED, "Signed-By": KEY}, id="paragraphs"),
        pytest.param(
            "sources.list",
            ONE_LINE,
            {**WANTED, "Signed-By": KEY, "Architectures": "amd64 i386"},
            id="lines",
        ),
        pytest.param(
            "a.sources",
            f"Types: deb\nURIs: {MIRROR}\nSuites: bookworm\nComponents: main\n"
            "Signed-By:\n -----BEGIN PGP-----\n .\n abc\n",
            {**WANTED, "Signed-By": "-----BEGIN PGP-----\n .\n abc"},
            id="a key in the paragraph",
        ),
        pytest.param("a.sources", f"Enabled: no\n{DEB822}", {}, id="switched off"),
        pytest.param("a.sources.disabled", DEB822, {}, id="not a source"),
        pytest.param("a.sources", DEB822.replace("bookworm ", "trixie "), {}, id="other release"),
    ],
)
def test_it_is_the_release_s_own_place_and_key(
    tmp_path: Path, name: str, text: str, expected: dict[str, str]
) -> None:
    assert fields(backports_source(tmp_path, {name: text})) == expected


def test_nothing_is_added_where_backports_are_known(tmp_path: Path) -> None:
    files = {"a.sources": DEB822, "b.list": f"deb {MIRROR} bookworm-backports main\n"}
    assert backports_source(tmp_path, files) == ""


def test_no_host_is_named_in_the_script() -> None:
    assert re.findall(r"https?://", SETUP.read_text()) == []
