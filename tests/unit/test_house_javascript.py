"""The JavaScript client is locked to what it is, not to where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "clients" / "javascript"
LOCK = json.loads((FOLDER / "package-lock.json").read_text())


def test_every_package_has_its_hash_and_none_its_server() -> None:
    packages = {name: one for name, one in LOCK["packages"].items() if name}
    assert packages
    assert [name for name, one in packages.items() if not one.get("integrity")] == []
    assert [name for name, one in packages.items() if "resolved" in one] == []
    assert "omit-lockfile-registry-resolved=true" in (FOLDER / ".npmrc").read_text().split()


def test_versions_are_exact_and_those_of_the_lock() -> None:
    wanted = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert LOCK["packages"][""]["dependencies"] == wanted
    for name, version in wanted.items():
        assert LOCK["packages"][f"node_modules/{name}"]["version"] == version
