"""The manifests of examples/ are listed, and say what to try."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_what_to_try_stands_above_it(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# "), "first what it shows"
    assert f"\n# Try:\n#   kubectl apply -f examples/{path.name}\n" in text


def test_the_list_has_every_manifest_once() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in MANIFESTS if text.count(f"| [{path.name}]") != 1] == []
