"""What one VM looks like: the newest reading of its domain, and what its guest says.

Notifications of libvirt and words of the guest wake waiting tasks. What a wait does next is decided
in wait_plan.py; this file looks and pauses as it says.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from livesize.api.vm_changes import Unplug, VmBalloon
from livesize.runtime.guest_channels import CHANNEL
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.changes import Correction, DomainReading
from livesize.runtime.libvirt.connection import DomainEvent
from livesize.runtime.libvirt.domain import Domain
from livesize.runtime.libvirt.environment import VmEnvironment, VmThread
from livesize.runtime.libvirt.facts import DomainFacts
from livesize.runtime.libvirt.guest_bounds import GuestLimits
from livesize.runtime.libvirt.guest_link import GuestCallbacks, GuestLink
from livesize.runtime.libvirt.lifecycle import VmLifecycle
from livesize.runtime.libvirt.outstanding import BalloonRequest, Unplugs
from livesize.runtime.libvirt.wait_plan import Look, Pause, Return, WaitObservation, WaitPlan
from livesize.runtime.libvirt.wakeups import Broadcast, Throttle
from livesize.runtime.vm import VmView
from livesize.runtime.vm_config import VmConfig

_MEMORY_MOVED = "MEMORY_DEVICE_SIZE_CHANGE"
_ENDING_SECONDS = 1.0
_GATHER_SECONDS = 0.02
_GATHERED = 8  # a guest says more than one thing at a time: a word for each part of its memory
_TELL_SECONDS = 0.2  # a guest may change its mind as often as it likes; a wait hears at once


class VmObserver:
    def __init__(
        self,
        size: VmConfig,
        lifecycle: VmLifecycle,
        domain: Domain,
        thread: VmThread,
        environment: VmEnvironment,
        limits: GuestLimits,
    ) -> None:
        uid = lifecycle.uid
        self.reading: DomainReading | None = None
        self._size = size
        self._uid = uid
        self._lifecycle = lifecycle
        self._domain = domain
        self._thread = thread
        self._environment = environment
        self._changed = Broadcast()
        self._events = Throttle(_TELL_SECONDS, lambda: environment.on_change(uid))
        callbacks = GuestCallbacks(spoke=self._guest_spoke, dropped=self.tell)
        self.guest = GuestLink(uid, domain, thread, limits, environment.clock, callbacks)
        self.unplugs = Unplugs()
        self._read_at = 0.0
        self._is_reading = False
        self._reads_again = False
        self._waits = 0  # how many look by themselves
        self._is_closed = False

    @property
    def _is_watched(self) -> bool:
        return self._lifecycle.is_running and not self._is_closed

    def view(self) -> VmView | None:
        """As read last; None before the first reading."""
        reading = self.reading
        if reading is None:
            return None
        live, is_running = reading.live, reading.is_running and self._lifecycle.is_running
        started = self._lifecycle.started
        return VmView(
            pod_uid=self._uid,
            running=is_running,
            accelerator=live.accelerator,
            max_vcpus=live.max_vcpus,
            plugged_vcpus=live.vcpus,
            persistent_vcpus=reading.persistent.vcpus,
            boot_memory_bytes=live.boot_memory_bytes,
            max_memory_bytes=min(self._size.max_memory_bytes, live.max_memory_bytes),
            devices=self.unplugs.shown(live.devices),
            persistent_devices=reading.persistent.devices,
            guest=self.guest.view if is_running else None,
            note=live.note,
            read_at=self._read_at,
            pins=live.pins.of(live.vcpus),
            persistent_pins=reading.persistent.pins.of(live.vcpus),
            keeps_memory=self._keeps_memory(),
            dropped=self.guest.dropped,
            technology=self._size.technology,
            cells=live.cells if self._size.cells else (),
            balloon=self._balloon(live),
            persistent_balloon=_persistent_balloon(reading.persistent),
            topology=live.topology,
            tune=reading.persistent.tune,
            persistent_tune=reading.persistent.tune,
            created_vcpus=0 if started is None else started.vcpus_created,
        )

    async def look(self, *, ask_guest: bool) -> VmView:
        """Read the domain, and ask the guest too or keep what it said last."""
        self._lifecycle.require_running()
        try:
            reading = await self._thread.run(self._domain.read)
        except RuntimeCallError:
            # A QEMU on its way out answers in many ways; that it ends is the one that counts.
            await self._lifecycle.ends_within(_ENDING_SECONDS)
            self._lifecycle.require_running()
            raise
        self._lifecycle.require_running()  # it may have ended, or been let go, meanwhile
        self.guest.agent_connected = reading.live.agent_connected
        if not self.guest.is_open:
            self._open_channel(reading)
        if ask_guest:
            await self.guest.ask()
        return self._take(reading)

    def correct(self, correction: Correction) -> None:
        """By what a change has read back."""
        assert self.reading is not None
        self.reading = correction(self.reading)
        self.wake()

    async def wait(self, holds: Callable[[VmView], bool], timeout_seconds: float) -> VmView:
        self._waits += 1
        try:
            return await self._wait(holds, timeout_seconds)
        finally:
            self._waits -= 1

    async def _wait(self, holds: Callable[[VmView], bool], timeout_seconds: float) -> VmView:
        seen = self._observation()
        plan = WaitPlan(holds, timeout_seconds, seen)
        while True:
            woken = False
            match plan.next_action(seen):
                case Return():
                    return self._last_view()
                case Look(ask_guest=ask_guest):
                    await self.look(ask_guest=ask_guest)
                case Pause(seconds=seconds):
                    woken = await self._changed.wait(seconds)
                    if woken:
                        await self._changed.rest(_GATHER_SECONDS, _GATHERED)
            seen = self._observation(woken=woken)

    def heard(self, event: DomainEvent) -> None:
        """libvirt told something of this domain."""
        self._note(event)
        if event.kind == _MEMORY_MOVED and self._waits and self.guest.speaks_up:
            return  # the guest says it too, and is left in peace until then
        if self._is_reading:
            self._reads_again = True  # what is being read may be from before the event
        elif self._is_watched:
            self._is_reading = True
            future = self._thread.begin(self._domain.read)
            future.add_done_callback(functools.partial(self._read_in_passing, event))

    def ask_balloon(self, memory_bytes: int) -> None:
        """It was asked to leave so much; by what is known, it may have it already."""
        self._lifecycle.note_start(balloon=BalloonRequest(memory_bytes))

    def wake(self) -> None:
        """Have every wait look again."""
        self._changed.wake_all()

    def tell(self) -> None:
        """Wake every wait, and publish an event."""
        self.wake()
        self._environment.on_change(self._uid)

    def close(self) -> None:
        self._is_closed = True
        self.guest.close()
        self._events.close()

    def _observation(self, *, woken: bool = False) -> WaitObservation:
        now = self._environment.clock.monotonic()
        return WaitObservation(now, self.view(), self.guest.said, self.guest.speaks_up, woken)

    def _keeps_memory(self) -> bool:
        guest, started = self.guest.view, self._lifecycle.started
        return bool(guest and started and started.unmovable_memory_boot == guest.boot_id)

    def _note(self, event: DomainEvent) -> None:
        """What a reading of the domain will not show."""
        started = self._lifecycle.started
        match event.kind:
            case "DEVICE_REMOVAL_FAILED":
                self.unplugs.set(event.alias, Unplug.REJECTED)
            case "DEVICE_REMOVED":
                self.unplugs.set(event.alias, Unplug.NONE)
            case "REBOOT":
                self.unplugs.forget()
                if started is not None and started.balloon is not None and self._is_watched:
                    self._lifecycle.note_start(balloon=started.balloon.rebooted())
            case "CONNECTED":
                self.unplugs.forget()  # events may have been missed
            case _:
                pass

    def _balloon(self, live: DomainFacts) -> VmBalloon | None:
        if live.balloon_bytes is None:
            return None
        started = self._lifecycle.started
        request = None if started is None else started.balloon
        requested_bytes = live.balloon_bytes if request is None else request.memory_bytes
        return VmBalloon(requested_bytes, live.balloon_bytes)

    def _follow_balloon(self, live: DomainFacts) -> None:
        started = self._lifecycle.started
        if live.balloon_bytes is not None and started is not None and self._is_watched:
            request = started.balloon or BalloonRequest(live.balloon_bytes)
            self._lifecycle.note_start(balloon=request.after(live.balloon_bytes))

    def _take(self, reading: DomainReading) -> VmView:
        self.reading, self._read_at = reading, self._environment.clock.now()
        self._follow_balloon(reading.live)
        self.unplugs.keep(reading.live.devices)
        self.guest.agent_connected = reading.live.agent_connected
        return self._last_view()

    def _last_view(self) -> VmView:
        view = self.view()
        assert view is not None
        return view

    def _open_channel(self, reading: DomainReading) -> None:
        path = reading.live.channels.get(CHANNEL, "")
        if path:
            self.guest.open(self._environment.daemon.host_path(path))

    def _guest_spoke(self, is_news: bool) -> None:
        if is_news:
            self._events.soon()
        self.wake()

    def _read_in_passing(self, event: DomainEvent, future: asyncio.Future[DomainReading]) -> None:
        self._is_reading = False
        again, self._reads_again = self._reads_again, False
        if future.cancelled() or future.exception() is not None or self._is_closed:
            return
        self._take(future.result())
        self.tell()
        if again:
            self.heard(event)


def _persistent_balloon(persistent: DomainFacts) -> VmBalloon | None:
    bytes_left = persistent.balloon_bytes
    return None if bytes_left is None else VmBalloon(bytes_left)
