"""Which user a VM's QEMU runs as."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.owners import (
    FIRST_UID,
    RANGE,
    VmOwner,
    choose_uid,
    first_uid_of,
    kvm_group,
    live_uids,
    parse_uids,
)
from livesize.runtime.libvirt.records import VmFolders

FIRST = FIRST_UID


@pytest.mark.parametrize(
    ("taken", "chosen"),
    [
        pytest.param(set(), FIRST, id="the first"),
        pytest.param({FIRST, FIRST + 1}, FIRST + 2, id="the next"),
        pytest.param({FIRST + 5}, FIRST + 6, id="after the newest, not what it may have left"),
        pytest.param({FIRST + RANGE - 1}, FIRST, id="from the beginning again"),
        pytest.param({FIRST + RANGE - 1, FIRST}, FIRST + 1, id="and what is free there"),
        pytest.param({0, 1000, FIRST - 1, FIRST + RANGE}, FIRST, id="others are not ours"),
    ],
)
def test_the_uid_of_a_new_vm(taken: set[int], chosen: int) -> None:
    assert choose_uid(FIRST, taken) == chosen


def test_where_all_are_in_use_it_is_said() -> None:
    with pytest.raises(RuntimeCallError, match="all 65536 uids"):
        choose_uid(FIRST, set(range(FIRST, FIRST + RANGE)))


@given(st.sets(st.integers(FIRST, FIRST + RANGE - 1), max_size=50))
def test_nobody_has_it(taken: set[int]) -> None:
    assert choose_uid(FIRST, taken) not in taken


def test_each_data_directory_has_its_part_of_what_systemd_leaves_unused(tmp_path: Path) -> None:
    parts = {first_uid_of(tmp_path / str(number)) for number in range(20)}
    assert len(parts) > 15
    for first in parts:
        assert first >= 1879048192
        assert first + RANGE <= 2147352575
        assert (first - FIRST_UID) % RANGE == 0


def test_processes_of_the_machine_count(tmp_path: Path) -> None:
    assert parse_uids("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t9\n") == {1, 2, 3, 4}
    for pid, words in (("7", "Uid:\t5\t5\t5\t5\n"), ("8", ""), ("self", "Uid:\t6\t6\t6\t6\n")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "status").write_text(words)
    (tmp_path / "9").mkdir()  # it has just ended
    assert live_uids(tmp_path) == {5}


def test_what_may_be_left_of_a_pod_keeps_its_uid(tmp_path: Path) -> None:
    """Also of one whose removal, or whose beginning, was cut off."""
    folders = VmFolders(tmp_path)
    folders.of("a").save_owner(VmOwner(FIRST, FIRST))
    folders.of("b").save_owner(VmOwner(FIRST + 1, FIRST + 1))
    assert {owner.uid for owner in VmFolders(tmp_path).owners()} == {FIRST, FIRST + 1}
    folders.of("a").remove()
    assert {owner.uid for owner in folders.owners()} == {FIRST + 1}


@pytest.mark.parametrize(("mode", "needed"), [(0o660, True), (0o666, False)])
def test_the_group_that_may_use_kvm(tmp_path: Path, mode: int, needed: bool) -> None:
    device = tmp_path / "kvm"
    device.touch()
    device.chmod(mode)
    assert (kvm_group(device) is not None) is needed
    assert kvm_group(tmp_path / "none") is None
