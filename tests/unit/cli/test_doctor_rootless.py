"""What the doctor says to an ordinary user: a line for each thing that is missing, and a remedy."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from livesize.cli.doctor.rootless_checks import UserFacts, observe_user, rootless_findings

GROUP = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
ALL = UserFacts("ada", GROUP, ("cpuset", "cpu", "memory", "pids"), {}, lingers=True)


def test_one_who_has_everything_still_hears_what_needs_root() -> None:
    findings = rootless_findings(ALL)
    assert {one.name for one in findings if not one.ok} == {"without-root"}
    assert all(one.ok or one.optional for one in findings)


@pytest.mark.parametrize(
    ("change", "name", "words", "stops"),
    [
        ({"group": ""}, "delegation", "units install up --user", True),
        ({"controllers": ("memory", "pids")}, "delegation", "Delegate=cpu cpuset", True),
        ({"controllers": ("cpu", "memory", "pids")}, "cpuset", "Delegate=cpu cpuset", False),
        ({"lingers": False}, "linger", "loginctl enable-linger ada", False),
        (
            {"switches": {"user/max_user_namespaces": "0"}},
            "user-namespaces",
            "sysctl user.max_user_namespaces",
            True,
        ),
        (
            {"switches": {"kernel/apparmor_restrict_unprivileged_userns": "1"}},
            "user-namespaces",
            "apparmor_restrict_unprivileged_userns=0",
            True,
        ),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(
    change: dict[str, object], name: str, words: str, stops: bool
) -> None:
    findings = rootless_findings(msgspec.structs.replace(ALL, **change))
    missing = next(one for one in findings if one.name == name and not one.ok)
    assert words in missing.remedy
    assert missing.optional is not stops


def test_facts_are_read_from_files(tmp_path: Path) -> None:
    switch = tmp_path / "proc/sys/user/max_user_namespaces"
    switch.parent.mkdir(parents=True)
    switch.write_text("0\n")
    facts = observe_user(lambda: (GROUP, ("cpu",)), tmp_path)
    assert (facts.group, facts.controllers, facts.lingers) == (GROUP, ("cpu",), False)
    assert facts.switches["user/max_user_namespaces"] == "0"
