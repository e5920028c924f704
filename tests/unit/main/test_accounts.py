"""The control plane has a user of its own; one that others are too is refused."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import click
import pytest

from livesize.main.wiring import accounts
from livesize.main.wiring.accounts import Account, check_own, control_plane_account, users_in


def test_a_user_of_its_own_is_good() -> None:
    check_own(Account("livesize", 990, 990), "livesize")


@pytest.mark.parametrize(
    ("uid", "first"), [(65534, "nobody"), (65534, "livesize"), (0, "root"), (990, "postgres")]
)
def test_a_user_that_others_are_too_is_refused(uid: int, first: str) -> None:
    with pytest.raises(click.ClickException, match="no other program has"):
        check_own(Account("livesize", uid, 990), first)


@pytest.mark.parametrize(
    ("uid_map", "count"),
    [("0 0 4294967295\n", 4294967295), ("0 1000 1\n", 1), ("0 1000 1\n1 100000 65536\n", 65537)],
)
def test_how_many_users_a_namespace_has(uid_map: str, count: int) -> None:
    assert users_in(uid_map) == count


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without the user, and never touching the real one."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "read_text", lambda _: "0 0 4294967295\n")
    users: dict[str, pwd.struct_passwd] = {}
    monkeypatch.setattr(accounts, "_find", lambda: users.get("livesize"))

    def run(words: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        assert words[0] == "useradd"
        entry = pwd.struct_passwd(("livesize", "x", 990, 990, "", "/nonexistent", "nologin"))
        users["livesize"] = entry
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: users["livesize"])


def test_a_machine_without_it_gets_it(as_root: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert control_plane_account() == Account("livesize", 990, 990)
    assert capsys.readouterr().err == "user livesize made, for the control plane\n"


def test_a_user_whose_uid_is_anothers_too_does_not_run_it(
    as_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pwd.struct_passwd(("postgres", "x", 990, 990, "", "/", "sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: first)
    with pytest.raises(click.ClickException, match="which is postgres's too"):
        control_plane_account()


def test_where_it_cannot_be_made_the_command_is_said(
    as_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "useradd")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(click.ClickException, match="run `useradd --system --user-group"):
        control_plane_account()


def test_the_only_user_of_a_namespace_stays_who_he_is(
    as_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: "0 1000 1\n")
    assert control_plane_account() is None
