"""What is on a machine belongs to a node uid, which its data directory keeps; one holds it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.ownership import (
    NodeIdentity,
    NodeLocks,
    NodeOwner,
    keep_identity,
    read_identity,
)


@pytest.fixture
def locks(tmp_path: Path) -> NodeLocks:
    return NodeLocks(tmp_path / "run/nodes")


def owner(directory: str = "/first", node: str = "n-1", uid: str = "") -> NodeOwner:
    uid = uid or directory.strip("/")
    return NodeOwner(node, NodeIdentity(uid, f"{node}.{uid}"), directory, pid=42)


def has_pods(_owner: NodeOwner) -> bool:
    return True


def has_none(_owner: NodeOwner) -> bool:
    return False


def test_a_node_keeps_its_uid_and_its_groups_over_restarts_and_new_names(tmp_path: Path) -> None:
    first = keep_identity(tmp_path / "node.json", "n-1")
    assert first.uid in first.group
    assert first.container_root == f"livesize/n-1.{first.uid}"
    assert keep_identity(tmp_path / "node.json", "renamed") == first
    assert read_identity(tmp_path / "node.json") == first


def test_two_data_directories_never_share_a_uid(tmp_path: Path) -> None:
    uids = {keep_identity(tmp_path / f"{number}.json", "n-1").uid for number in range(100)}
    assert len(uids) == 100


def test_an_identity_that_cannot_be_read_is_never_replaced_by_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{")
    with pytest.raises(RuntimeCallError, match="cannot be read"):
        keep_identity(tmp_path / "node.json", "n-1")
    assert (tmp_path / "node.json").read_text() == "{"


def test_a_second_owner_of_a_living_node_hears_who_has_it_and_what_to_do(locks: NodeLocks) -> None:
    with locks.held(owner("/first"), has_none), pytest.raises(RuntimeCallError) as refusal:  # noqa: SIM117
        with locks.held(owner("/second"), has_none):
            pass
    assert str(refusal.value) == (
        "node n-1 runs on this machine already: process 42 with --data-dir /first. Choose another"
        " name with --node-name, or stop that one first"
    )


def test_nodes_of_other_names_run_beside_it(locks: NodeLocks) -> None:
    with locks.held(owner("/first"), has_none), locks.held(owner("/second", "n-2"), has_none):
        assert [one.directory for one in locks.owners()] == ["/first", "/second"]


def test_the_same_data_directory_takes_over_from_its_dead_self(locks: NodeLocks) -> None:
    with locks.held(owner(), has_pods):
        pass  # what a process held that died is free, and its note stays
    with locks.held(msgspec.structs.replace(owner(), pid=43), has_pods):
        assert [one.pid for one in locks.owners()] == [43]


def test_who_leaves_nothing_leaves_no_note(locks: NodeLocks) -> None:
    with locks.held(owner(), has_none):
        assert locks.owners() == [owner()]
    assert locks.owners() == []
    with locks.held(owner("/second"), has_none):
        assert locks.owners() == [owner("/second")]


def test_another_directory_does_not_take_over_while_pods_of_the_dead_one_are_there(
    locks: NodeLocks,
) -> None:
    with locks.held(owner("/first"), has_pods):
        pass
    with pytest.raises(RuntimeCallError) as refusal, locks.held(owner("/second"), has_pods):
        pass
    assert "--data-dir /first" in str(refusal.value)
    assert "livesize clean --node-name n-1" in str(refusal.value)
    assert [one.directory for one in locks.owners()] == ["/first"]


def test_another_directory_takes_over_what_left_nothing(locks: NodeLocks) -> None:
    with locks.held(owner("/first"), has_pods):
        pass
    with locks.held(owner("/second"), has_none):
        assert [one.directory for one in locks.owners()] == ["/second"]


def test_a_copy_of_a_living_data_directory_is_refused(locks: NodeLocks) -> None:
    with locks.held(owner("/first", uid="u"), has_none), pytest.raises(RuntimeCallError) as refusal:  # noqa: SIM117
        with locks.held(owner("/copy", "n-2", uid="u"), has_none):
            pass
    assert "--data-dir /copy is a copy of /first" in str(refusal.value)


def test_a_record_that_was_not_written_whole_counts_as_none(
    locks: NodeLocks, tmp_path: Path
) -> None:
    with locks.held(owner("/first"), has_pods):
        pass
    (tmp_path / "run/nodes/n-1").write_text('{"node":')
    with locks.held(owner("/second"), has_pods):
        assert [one.directory for one in locks.owners()] == ["/second"]


def test_a_living_owner_is_not_to_be_cleaned(locks: NodeLocks) -> None:
    with (
        locks.held(owner(), has_none),
        pytest.raises(RuntimeCallError, match="node n-1 is alive: process 42"),
        locks.dead("n-1"),
    ):
        pass


def test_a_dead_owner_is_known_until_it_is_forgotten(locks: NodeLocks) -> None:
    with locks.held(owner(), has_pods):
        pass
    with locks.dead("n-1") as found:
        assert found == owner()
        locks.forget("n-1")
    with locks.dead("n-1") as found:
        assert found is None
    with locks.dead("unheard-of") as found:
        assert found is None
