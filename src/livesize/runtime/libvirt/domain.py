"""One domain of our libvirtd: calls that block, made by its VM's own thread and no other.

Every call says what is to be, not what is to be done, so that one cut off by the end of libvirtd
is simply made again on the next connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar
from xml.etree import ElementTree as ET

from livesize.api.vm_changes import (
    Definition,
    DeviceChange,
    OnlineMemory,
    OnlineVcpus,
    PersistVcpus,
    PinVcpus,
    PlugDevice,
    PlugVcpus,
    SetBalloon,
    SetRequested,
    TuneCpu,
    UnplugDevice,
    UnplugVcpus,
    VcpuChange,
    VmChange,
    WriteNote,
)
from livesize.machinery.clock import Clock
from livesize.runtime.interface import GoneError, RuntimeCallError
from livesize.runtime.libvirt.changes import (
    Correction,
    DomainReading,
    change_device,
    live_vcpus,
    persist_vcpus,
    pin,
    plug,
    tune_cpu,
    unplug,
    write_note,
)
from livesize.runtime.libvirt.connection import LibvirtConnection, load_libvirt
from livesize.runtime.libvirt.facts import (
    DomainFacts,
    parse_facts,
    with_balloon,
    with_current,
)
from livesize.runtime.libvirt.guest_bounds import GuestLimits, ImplausibleReportError
from livesize.runtime.libvirt.guest_query import AGENT_SECONDS, GuestQuery, is_silence
from livesize.runtime.libvirt.identity import DomainIdentity, pod_of
from livesize.runtime.libvirt.model import DomainModel, render, render_note
from livesize.runtime.vm import GuestSilentError, GuestView

T = TypeVar("T")
Call: TypeAlias = Callable[[Any], Correction]


class Domain:
    def __init__(
        self,
        connection: LibvirtConnection,
        identity: DomainIdentity,
        limits: GuestLimits,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._clock = clock
        self._identity = identity
        self._what = f"the VM of pod {identity.pod_uid}"  # for sentences
        self._known: tuple[Any, Any] = None, None  # the domain, as a connection knows it

    def start_paused(self, model: DomainModel) -> None:
        """Define it anew and start it; the guest does not run yet. What ran before is gone."""
        self.destroy()
        words = f"define the domain of {self._what}"
        self._on_connection(words, lambda connection: self._define(connection, model))
        self._do("start", self._create)

    def release(self) -> None:
        """Let a guest run that was started paused; harmless where it runs."""
        libvirt = load_libvirt()

        def call(domain: Any) -> None:
            if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
                domain.resume()

        self._do("run", call)

    def limit_agent_calls(self) -> None:
        """Without it, a call to an agent that hangs would hang as well."""
        self._do("prepare", lambda domain: domain.agentSetResponseTimeout(AGENT_SECONDS))

    def read(self) -> DomainReading:
        libvirt = load_libvirt()

        def call(domain: Any) -> DomainReading:
            live, persistent = domain.XMLDesc(0), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
            state = domain.state()[0]
            facts = parse_facts(live)
            if state not in (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED):
                facts = _as_qemu_says(domain, facts)
            is_running = state == libvirt.VIR_DOMAIN_RUNNING
            return DomainReading(facts, parse_facts(persistent), is_running)

        return self._do("read", call)

    def was_shut_down(self) -> bool:
        """Did it end because its guest powered off?"""
        libvirt = load_libvirt()
        ended = [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN]
        return self._do("read", lambda domain: bool(domain.state() == ended))

    def plugged_vcpus(self) -> int:
        return self._do("read", live_vcpus)

    def info_jit(self) -> str:
        """How full QEMU's cache of translated code is, in its own words. It takes a while."""
        return self._do("read", partial(_human, words="info jit"))

    def split_code(self, is_split: bool) -> bool:
        """Have QEMU translate one instruction at a time, or whole blocks as usual; False: it does
        not know how to. Only under TCG."""
        words = f"one-insn-per-tb {'on' if is_split else 'off'}"
        return not self._do("prepare", partial(_human, words=words))

    def change(self, change: VmChange, known: DomainFacts | None = None) -> Correction:
        """Do it, and read back what it was to change. ``known``: the running domain, as it was
        read last; whatever is needed of it is read where it is not given."""
        what, call = self._call_for(change, known)
        return self._do(what, call)

    def _call_for(self, change: VmChange, known: DomainFacts | None) -> tuple[str, Call]:
        """What it is in words, and the calls it takes."""
        match change:
            case SetRequested() | PlugDevice() | UnplugDevice() | SetBalloon():
                call = partial(change_device, change=change, known=known)
                return _device_words(change), call
            case WriteNote(note=note):
                return "note the state of", partial(write_note, element=render_note(note))
            case OnlineMemory():
                raise AssertionError("online_memory says where it went")
            case _:
                return self._vcpu_call_for(change)

    def _vcpu_call_for(self, change: VcpuChange) -> tuple[str, Call]:
        match change:
            case PlugVcpus(count=count):
                return f"plug vCPUs up to {count} into", partial(plug, count=count)
            case UnplugVcpus(count=count):
                return f"unplug vCPUs down to {count} from", partial(unplug, count=count)
            case OnlineVcpus(count=count):
                return f"have {count} vCPUs used by", partial(self._switch, count=count)
            case PersistVcpus(count=count):
                return f"persist {count} vCPUs for", partial(persist_vcpus, count=count)
            case PinVcpus(pins=pins):
                return "pin", partial(pin, pins=pins)
            case TuneCpu(tune=tune):
                return "set the CPU time of", partial(tune_cpu, tune=tune)

    def shut_down(self, *, by_agent: bool) -> None:
        """Ask the guest to power off; it may take its time, or not listen."""
        libvirt = load_libvirt()
        button, agent = "VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN", "VIR_DOMAIN_SHUTDOWN_GUEST_AGENT"
        flags = getattr(libvirt, agent if by_agent else button)
        self._do("shut down", lambda domain: domain.shutdownFlags(flags))

    def destroy(self) -> None:
        """Harmless where it does not run or does not exist."""

        try:
            self._do("end", _destroy)
        except GoneError:
            return

    def forget(self) -> None:
        """End it and remove its definition."""

        def call(domain: Any) -> None:
            _destroy(domain)
            domain.undefineFlags(_undefine_flags())

        try:
            self._do("remove the domain of", call)
        except GoneError:
            return

    def ask_agent(self) -> GuestView | None:
        """What a guest without our own line says through its agent; None where it does not.
        Raises UnfitWordsError."""
        try:
            return self._do("ask the agent of", lambda domain: self._guest(domain).view())
        except ImplausibleReportError:
            raise
        except RuntimeCallError:
            return None

    def online_memory(self) -> bool:
        """See GuestTalk. It may take seconds."""
        return self._do(
            "bring memory online in", lambda domain: self._guest(domain).online_memory()
        )

    def _create(self, domain: Any) -> None:
        libvirt = load_libvirt()
        if not domain.isActive():
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)

    def _switch(self, domain: Any, count: int) -> Correction:
        """Nothing of the domain changes; the guest itself says whether it did it."""
        self._guest(domain).switch_vcpus(count)
        return lambda reading: reading

    def _guest(self, domain: Any) -> GuestQuery:
        return GuestQuery(domain, self._limits, self._clock)

    def _do(self, what: str, call: Callable[[Any], T]) -> T:
        return self._on_connection(
            f"{what} {self._what}", lambda connection: call(self._look_up(connection))
        )

    def _look_up(self, connection: Any) -> Any:
        """Once for each connection: it is an object of libvirt's that names the domain. The VM
        may run here as another pod's by now, which is left alone."""
        if self._known[0] is not connection:
            domain = connection.lookupByUUIDString(self._identity.uuid)
            pod_uid = _pod_of(domain)
            if pod_uid not in ("", self._identity.pod_uid):
                raise GoneError(f"{self._what} is gone: pod {pod_uid} runs it now")
            self._known = connection, domain
        return self._known[1]

    def _define(self, connection: Any, model: DomainModel) -> None:
        """Over a definition of another pod, or of an earlier version by another name; never over
        a domain that runs: there is one guest of a VM."""
        self._known = None, None
        for domain in connection.listAllDomains():
            if domain.UUIDString() != model.uuid:
                continue
            if domain.isActive():
                raise RuntimeCallError(
                    f"{self._what} runs on this machine already, as pod {_pod_of(domain)}'s"
                )
            if domain.name() != model.name:
                domain.undefineFlags(_undefine_flags())
        connection.defineXML(render(model))

    def _on_connection(self, what: str, call: Callable[[Any], T]) -> T:
        libvirt = load_libvirt()
        for last in (False, True):
            connection = self._connection.connection()
            try:
                return call(connection)
            except libvirt.libvirtError as failure:
                self._known = None, None
                if last or connection.isAlive() == 1:
                    raise _failed(libvirt, what, failure) from failure
        raise AssertionError("unreachable")


def _device_words(change: DeviceChange) -> str:
    """For sentences."""
    where = "" if change.definition is Definition.LIVE else " persistently"
    match change:
        case SetRequested(alias=alias, requested_bytes=requested_bytes):
            return f"request {requested_bytes} bytes of memory device {alias}{where} for"
        case PlugDevice(alias=alias, size_bytes=size_bytes):
            return f"plug memory device {alias} of {size_bytes} bytes{where} into"
        case UnplugDevice(alias=alias):
            return f"unplug memory device {alias}{where} from"
        case SetBalloon(memory_bytes=memory_bytes):
            return f"set the balloon{where} to {memory_bytes} bytes for"


def _pod_of(domain: Any) -> str:
    return pod_of(ET.fromstring(domain.XMLDesc(0)))  # noqa: S314 — our own libvirtd's words


def _undefine_flags() -> int:
    libvirt = load_libvirt()
    flags: int = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    return flags


def _as_qemu_says(domain: Any, facts: DomainFacts) -> DomainFacts:
    """libvirt hears late of what moves."""
    devices = _query(domain, "query-memory-devices") if facts.devices else []
    facts = with_current(facts, devices)
    if facts.balloon_bytes is not None:
        actual_bytes = int(_query(domain, "query-balloon")["actual"])
        facts = with_balloon(facts, actual_bytes, devices)
    return facts


def _query(domain: Any, name: str) -> Any:
    """QEMU's own answer."""
    import libvirt_qemu

    words = json.dumps({"execute": name})
    return json.loads(libvirt_qemu.qemuMonitorCommand(domain, words, 0))["return"]


def _human(domain: Any, words: str) -> str:
    """What QEMU says to a command for people."""
    import libvirt_qemu

    human = libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP
    return str(libvirt_qemu.qemuMonitorCommand(domain, words, human)).strip()


def _destroy(domain: Any) -> None:
    """libvirt may learn of the end by itself between two questions."""
    libvirt = load_libvirt()
    if domain.isActive():
        try:
            domain.destroy()
        except libvirt.libvirtError as failure:
            if failure.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:
                raise


def _failed(libvirt: Any, what: str, failure: Any) -> RuntimeCallError:
    sentence = f"cannot {what}: {failure.get_error_message()}"
    code = failure.get_error_code()
    ended = code == libvirt.VIR_ERR_OPERATION_INVALID and "not running" in sentence
    if code == libvirt.VIR_ERR_NO_DOMAIN or ended:
        return GoneError(sentence)
    if is_silence(libvirt, failure):
        return GuestSilentError(f"{sentence}; the guest still boots, has no agent, or hangs")
    return RuntimeCallError(sentence)
