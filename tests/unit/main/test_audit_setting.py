"""--audit-log: refused with a sentence before anything starts."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from livesize.main.wiring.accounts import Account
from livesize.main.wiring.apiserver_setup import prepare_audit_log
from livesize.main.wiring.folders import may_write

SOMEBODY = Account("somebody", 12345, 12345)


def test_no_log_needs_no_folder() -> None:
    assert prepare_audit_log("", SOMEBODY) == ""


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(click.BadParameter, match="cannot be written by somebody"):
        prepare_audit_log(str(tmp_path / "audit.log"), SOMEBODY)
    tmp_path.chmod(0o777)
    assert prepare_audit_log(str(tmp_path / "audit.log"), SOMEBODY)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="cannot be written"):
        prepare_audit_log(str(tmp_path), None)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(click.BadParameter, match="cannot be made"):
        prepare_audit_log(str(tmp_path / "file" / "below" / "audit.log"), None)


@pytest.mark.parametrize(
    ("mode", "allowed"), [(0o755, False), (0o777, True), (0o776, False), (0o700, False)]
)
def test_who_may_write(tmp_path: Path, mode: int, allowed: bool) -> None:
    tmp_path.chmod(mode)
    assert may_write(tmp_path, SOMEBODY) is allowed
