"""What was asked of a guest and no domain tells: which devices it is to let go of, and what its
balloon is to leave. Pure.

QEMU does not say what the balloon was asked for, only what there is, so it is noted beside the
VM's other files. An unplug is known for as long as the agent and the guest's boot last; asked for
again, nothing is lost.

    none ──asked──► PENDING ──the guest rejects it──► REJECTED ──asked again──► PENDING
                      └──the guest lets go──► the device is gone
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from livesize.api.vm_changes import Unplug, VmDevice


class BalloonRequest(msgspec.Struct, frozen=True):
    """``is_reached``: the guest had left itself just so much."""

    memory_bytes: int
    is_reached: bool = False

    def after(self, current_bytes: int) -> BalloonRequest:
        """A balloon that had come to rest and moves was asked for something else, by another
        program: what it has is then all that is known of it."""
        if current_bytes != self.memory_bytes and not self.is_reached:
            return self
        return BalloonRequest(current_bytes, is_reached=True)

    def rebooted(self) -> BalloonRequest:
        """It begins with all the memory, and gives back once more."""
        return BalloonRequest(self.memory_bytes)


class Unplugs:
    """Of the devices of one VM."""

    def __init__(self) -> None:
        self._states: dict[str, Unplug] = {}

    def of(self, alias: str) -> Unplug:
        return self._states.get(alias, Unplug.NONE)

    def set(self, alias: str, state: Unplug) -> None:
        if state is Unplug.NONE:
            self._states.pop(alias, None)
        else:
            self._states[alias] = state

    def forget(self) -> None:
        """Whether the guest still works on them is not known."""
        self._states.clear()

    def shown(self, devices: Iterable[VmDevice]) -> tuple[VmDevice, ...]:
        """With where their unplug stands."""
        return tuple(msgspec.structs.replace(one, unplug=self.of(one.alias)) for one in devices)

    def keep(self, devices: Iterable[VmDevice]) -> None:
        """Those of these devices: an alias may be used again."""
        aliases = {device.alias for device in devices}
        for alias in [one for one in self._states if one not in aliases]:
            del self._states[alias]
