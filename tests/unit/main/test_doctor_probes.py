"""What the doctor looks at for containerd, where it may not look."""

from __future__ import annotations

from pathlib import Path

import pytest

from livesize.main.commands import doctor_probes


def test_a_folder_that_this_user_may_not_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied", "/etc/cni/net.d")

    monkeypatch.setattr(Path, "is_dir", lambda _: True)
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert doctor_probes.observe_containerd().network is None
