"""The tracker's promises, against a disk that may fail at every write and sync.

The disk is the worst there can be: after a failed sync it keeps nothing that was not on it before,
and appended syncs succeed without bringing anything, until one rewrites all contents.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from livesize.agent.allocation.checkpoint_file import CheckpointError, SyncMode
from livesize.agent.allocation.durability import DurabilityTracker, WriteState
from livesize.agent.allocation.memory_file import MemoryDisk

UIDS = st.sampled_from("abc")


class Durability(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tracker = DurabilityTracker()
        self.disk = MemoryDisk()
        self.file = self.disk.open()
        self.version = 0
        self.added: dict[str, int] = {}  # the newest version of each
        self.as_of: list[dict[str, int]] = [{}]  # by the number of a write
        self.syncing: SyncMode | None = None
        self.synced_writes = 0

    @rule(uid=UIDS)
    def add(self, uid: str) -> None:
        self.version += 1
        self.added[uid] = self.version
        self.tracker.add(uid, str(self.version).encode())

    @precondition(lambda self: self.tracker.pending)
    @rule(fails=st.booleans())
    def write(self, fails: bool) -> None:
        self.disk.is_full = fails
        before = dict(self.tracker.pending)
        try:
            self.file.write(self.tracker.pending)
        except CheckpointError:
            assert self.tracker.pending == before, "what could not be written goes with the next"
            return
        number = self.tracker.wrote()
        self.as_of.append(dict(self.added))
        assert number == self.tracker.written == len(self.as_of) - 1
        assert self.tracker.state_of(number) is WriteState.IN_FILE
        assert not self.tracker.pending

    @precondition(lambda self: self.syncing is None)
    @rule()
    def begin_sync(self) -> None:
        sound = self.tracker.is_sound
        self.syncing = self.tracker.begin_sync()
        self.synced_writes = self.disk.unsynced_writes
        if self.syncing is None:
            states = {self.tracker.state_of(number) for number in range(1, len(self.as_of))}
            assert WriteState.IN_FILE not in states, "there was something to sync"
        else:
            assert (self.syncing is SyncMode.APPENDED) == sound
            assert self.tracker.begin_sync() is None, "one at a time"

    @precondition(lambda self: self.syncing is not None)
    @rule(fails=st.booleans())
    def end_sync(self, fails: bool) -> None:
        assert self.syncing is not None
        self.disk.failing_syncs = int(fails)
        in_file = [
            number
            for number in range(1, self.tracker.written + 1)
            if self.tracker.state_of(number) is WriteState.IN_FILE
        ]
        try:
            self.disk.sync(self.syncing, self.synced_writes)
        except CheckpointError:
            assert self.tracker.sync_failed() == self.tracker.written
            for number in in_file:
                assert self.tracker.state_of(number) is WriteState.LOST
        else:
            self.tracker.synced()
            assert self.tracker.is_sound
        self.syncing = None

    @precondition(lambda self: self.tracker.is_alone(self.tracker.written))
    @rule(fails=st.booleans())
    def sync_on_the_spot(self, fails: bool) -> None:
        self.begin_sync()
        assert self.syncing is SyncMode.APPENDED, "sync_now can do no more"
        self.end_sync(fails)

    @invariant()
    def no_entry_is_in_the_file_without_those_before_it(self) -> None:
        left = {uid: int(content) for uid, content in self.disk.contents().items()}
        assert left == self.as_of[-1]

    @invariant()
    def what_is_on_disk_survives_a_loss_of_power(self) -> None:
        left = {uid: int(content) for uid, content in self.disk._synced.items()}
        for number, entries in enumerate(self.as_of):
            if self.tracker.state_of(number) is WriteState.ON_DISK:
                for uid, version in entries.items():
                    assert left.get(uid, 0) >= version, f"write {number} was called durable"

    @invariant()
    def what_is_lost_is_part_of_the_next_write_or_sync(self) -> None:
        """All that is not on disk is pending, or in the file for the sync that rewrites it."""
        if not self.tracker.is_sound:
            on_disk = {uid: int(content) for uid, content in self.disk._synced.items()}
            pending = {uid: int(content or b"0") for uid, content in self.tracker.pending.items()}
            rewritten = self.as_of[-1] if self._may_sync else {}
            for uid, version in self.as_of[-1].items():
                newest = max(known.get(uid, 0) for known in (on_disk, pending, rewritten))
                assert newest >= version

    @property
    def _may_sync(self) -> bool:
        return (
            self.syncing is not None
            or self.tracker.state_of(self.tracker.written) is WriteState.IN_FILE
        )


TestDurability = Durability.TestCase
