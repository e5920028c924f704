"""What a guest's agent answers, and what of it is believed."""

from __future__ import annotations

import base64
import json
import sys
from types import SimpleNamespace
from typing import Any

import libvirt
import msgspec
import pytest

from livesize.machinery.clock import Clock, SystemClock
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.guest_bounds import GuestLimits, ImplausibleReportError
from livesize.runtime.libvirt.guest_query import AGENT_SECONDS, GuestQuery
from livesize.runtime.vm import GuestSilentError
from virtual_time import CLOCK, virtual_time

SYSTEM = SystemClock()
LIMITS = GuestLimits(max_vcpus=4, max_memory_bytes=2 << 30)
FILES = {
    "/proc/meminfo": "MemTotal:  413216 kB\nMemFree: 1 kB\nMemAvailable:  378612 kB\n",
    "/proc/uptime": "5.12 4.00\n",
    "/proc/sys/kernel/random/boot_id": "0b6f0c5e-7b55-4a7f-9d53-0d2f0d6d7a01\n",
}


class Agent:
    """The guest's side; ``answers`` are raw words in the place of a command's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = dict(FILES)
        self.answers: dict[str, str] = {}
        self.refused: set[str] = set()
        self.vcpus: dict[str, str] | None = {"vcpus": "0-3", "online": "0-1", "offlinable": "1-3"}
        self.blocks = [True, True, False, False]
        self.switched: list[tuple[str, int]] = []
        self.asked: list[str] = []
        self._open: list[str] = []
        module = SimpleNamespace(qemuAgentCommand=self._command)
        monkeypatch.setitem(sys.modules, "libvirt_qemu", module)

    def query(self, clock: Clock = SYSTEM, cells: int = 1) -> GuestQuery:
        return GuestQuery(self, msgspec.structs.replace(LIMITS, cells=cells), clock)

    def guestVcpus(self) -> dict[str, str] | None:  # noqa: N802 — libvirt's name
        return self.vcpus

    def setGuestVcpus(self, cpus: str, state: int) -> None:  # noqa: N802 — libvirt's name
        self.switched.append((cpus, state))

    def _command(self, _domain: object, words: str, _seconds: int, _flags: int) -> str:
        asked = json.loads(words)
        name, arguments = asked["execute"], asked["arguments"]
        self.asked.append(name)
        if name in self.refused:
            raise libvirt.libvirtError(f"Command {name} has been disabled")
        if name in self.answers:
            return self.answers[name]
        return json.dumps({"return": self._answer(name, arguments)})

    def _answer(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "guest-file-open":
            if arguments["path"] not in self.files:
                raise libvirt.libvirtError("failed to open file: No such file or directory")
            self._open.append(arguments["path"])
            return len(self._open) - 1
        if name == "guest-file-read":
            content = self.files[self._open[arguments["handle"]]].encode()
            return {"count": len(content), "buf-b64": base64.b64encode(content).decode()}
        return self._memory_answer(name, arguments)

    def _memory_answer(self, name: str, arguments: dict[str, Any]) -> Any:
        match name:
            case "guest-get-memory-blocks":
                return [{"phys-index": n, "online": on} for n, on in enumerate(self.blocks)]
            case "guest-exec":
                assert "online_movable" in arguments["arg"][1]
                self.blocks = [True] * len(self.blocks)
                return {"pid": 7}
            case "guest-exec-status":
                return {"exited": True, "exitcode": 0}
            case "guest-set-memory-blocks":
                for block in arguments["mem-blks"]:
                    self.blocks[block["phys-index"]] = block["online"]
                return []
            case _:
                return {}


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Agent:
    return Agent(monkeypatch)


def test_what_it_says_is_read(agent: Agent) -> None:
    view = agent.query().view()
    assert (view.vcpus_online, view.memory_seen_bytes) == (2, 413216 * 1024)
    assert (view.uptime_seconds, view.agent) == (5.12, True)


NODE = "/sys/devices/system/node/node{}/meminfo"


def node_words(number: int, total_kib: object) -> str:
    """As Linux writes it."""
    return f"Node {number} MemTotal: {total_kib:>14} kB\nNode {number} MemFree: 1 kB\n"


def test_each_of_several_nodes_is_read(agent: Agent) -> None:
    agent.files |= {NODE.format(0): node_words(0, 200000), NODE.format(1): node_words(1, 213216)}
    assert agent.query(cells=2).view().memory_by_node == (200000 * 1024, 213216 * 1024)
    agent.asked.clear()
    assert agent.query().view().memory_by_node == ()
    assert agent.asked.count("guest-file-open") == 3, "where there is one, nothing more is asked"


def test_a_node_that_the_guest_does_not_have_has_no_memory(agent: Agent) -> None:
    agent.files[NODE.format(1)] = node_words(1, 413216)
    assert agent.query(cells=3).view().memory_by_node == (0, 413216 * 1024, 0)
    del agent.files[NODE.format(1)]
    view = agent.query(cells=3).view()
    assert (view.memory_by_node, view.memory_seen_bytes) == ((), 413216 * 1024)


@pytest.mark.parametrize("words", ["", "many", "-5", "9" * 4000, "9999999999"])
def test_a_node_with_memory_that_cannot_be_is_dropped(agent: Agent, words: str) -> None:
    agent.files |= {NODE.format(0): node_words(0, 1), NODE.format(1): node_words(1, words)}
    with pytest.raises(ImplausibleReportError):
        agent.query(cells=2).view()


def raw(value: object) -> str:
    return json.dumps({"return": value})


_NO_SENSE = "makes no sense"


@pytest.mark.parametrize(
    ("name", "answer", "why"),
    [
        pytest.param("guest-file-open", raw("x"), _NO_SENSE, id="a handle that is none"),
        pytest.param("guest-file-read", raw([]), _NO_SENSE, id="a list in the place of a file"),
        pytest.param(
            "guest-file-read",
            raw({"buf-b64": "A" * 8000}),
            "comes with 6000 bytes",
            id="more than was asked",
        ),
        pytest.param(
            "guest-file-read",
            raw({"buf-b64": "A" * 2_000_000}),
            r"is answered with 20\d{5} bytes",
            id="much more",
        ),
        pytest.param("guest-file-read", raw({"buf-b64": "A"}), "not base64", id="not base64"),
        pytest.param("guest-file-read", raw({"buf-b64": "!"}), "no MemTotal", id="an empty file"),
        pytest.param("guest-file-read", "[" * 100_000, _NO_SENSE, id="deep"),
        pytest.param("guest-file-read", "{}", _NO_SENSE, id="nothing"),
    ],
)
def test_an_answer_of_another_shape_is_dropped(
    agent: Agent, name: str, answer: str, why: str
) -> None:
    """For the first reason there is: what is much too large is not even decoded."""
    agent.answers[name] = answer
    with pytest.raises(ImplausibleReportError, match=why):
        agent.query().view()


@pytest.mark.parametrize(
    ("path", "content"),
    [
        pytest.param("/proc/meminfo", "MemTotal: many kB\nMemAvailable: 1 kB\n", id="no number"),
        pytest.param("/proc/meminfo", f"MemTotal: {'9' * 4000} kB\n", id="a long number"),
        pytest.param("/proc/meminfo", "MemTotal: 9999999999 kB\nMemAvailable: 1 kB", id="memory"),
        pytest.param("/proc/meminfo", "no colon", id="no memory"),
        pytest.param("/proc/uptime", "nan 1", id="no time"),
        pytest.param("/proc/uptime", "", id="nothing"),
        pytest.param("/proc/sys/kernel/random/boot_id", "b" * 100, id="boot id"),
    ],
)
def test_a_figure_that_its_domain_cannot_have_is_dropped(
    agent: Agent, path: str, content: str
) -> None:
    agent.files[path] = content
    with pytest.raises(ImplausibleReportError):
        agent.query().view()


def test_cpus_it_cannot_have_are_dropped(agent: Agent) -> None:
    agent.vcpus = {"vcpus": "0-4095", "online": "0-4095", "offlinable": "1-4095"}
    with pytest.raises(ImplausibleReportError, match="its domain can have 4"):
        agent.query().view()
    with pytest.raises(ImplausibleReportError):
        agent.query().switch_vcpus(2)
    assert agent.switched == []


def test_no_answer_is_silence(agent: Agent) -> None:
    agent.vcpus = None
    with pytest.raises(GuestSilentError):
        agent.query().switch_vcpus(2)


@virtual_time
async def test_all_answers_together_have_their_time(agent: Agent) -> None:
    query = agent.query(CLOCK)
    await CLOCK.sleep(AGENT_SECONDS)
    query.view()
    agent.asked.clear()
    await CLOCK.sleep(0.1)
    with pytest.raises(GuestSilentError, match="longer than 5 s"):
        query.view()
    assert agent.asked == []


def test_offline_memory_goes_where_it_can_be_taken_back(agent: Agent) -> None:
    assert agent.query().online_memory() is True
    assert all(agent.blocks)
    assert "guest-set-memory-blocks" not in agent.asked


def test_where_nothing_is_offline_nothing_is_run(agent: Agent) -> None:
    agent.blocks = [True]
    assert agent.query().online_memory() is True
    assert agent.asked == ["guest-get-memory-blocks"]


def test_where_nothing_may_be_run_its_agent_does_it_and_it_may_stay(agent: Agent) -> None:
    agent.refused = {"guest-exec"}
    assert agent.query().online_memory() is False
    assert all(agent.blocks)


def test_where_neither_is_allowed_it_is_said(agent: Agent) -> None:
    agent.refused = {"guest-exec", "guest-set-memory-blocks"}
    with pytest.raises(RuntimeCallError, match="allows neither guest-exec nor"):
        agent.query().online_memory()


def test_more_blocks_than_the_domain_can_have_are_dropped(agent: Agent) -> None:
    agent.blocks = [False] * 5000
    with pytest.raises(ImplausibleReportError, match="names 5000 blocks"):
        agent.query().online_memory()
