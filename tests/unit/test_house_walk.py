"""ARCHITECTURE.md, the four walks: what the code really does, in the order of the document.

Each walk is done once, with a profiler in every thread: the real API server over TLS, the real
agent and scheduler, and a client in a thread of its own. Each function named in the walk's section
must have been entered, in the order of the document. Without root the machine is the fake one, and
the rows below runtime/ are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pytest
from click.testing import CliRunner

from design.one_process import NAMESPACE, OneProcess, one_process
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.cli.app import cli
from livesize.client.http import HttpClient
from livesize.client.informer import Delta, Informer
from livesize.client.kubeconfig import connection_from
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import group_path
from livesize.runtime.interface import ContainerGroup
from livesize.runtime.oci import BUILT_IN_IMAGE
from livesize.scheduler.loop import Scheduler

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "livesize"
PATCH = "## One PATCH, from the API server to the cgroup and back"
CREATION = "## A pod's creation, from the manifest to Running"
VM_RESIZE = "## A resize of a virtual machine, on its node"
WATCH_EVENT = "## A watch event, from the commit to an informer"
QUIET_SECONDS = 0.1
WAIT_SECONDS = 10.0
ROW = re.compile(r"\| `([\w/]+\.py)` \| `(\w+)` \|")
VM_SIZE = {"cpu": "1", "memory": "512Mi"}
VM = {
    "kernel": {"image": "guest.vmlinuz"},
    "resources": {"requests": VM_SIZE, "limits": VM_SIZE},
}


class Place(NamedTuple):
    """A file below src/livesize, and one of its functions."""

    file: str
    function: str


def walk(heading: str) -> list[Place]:
    """The rows of the section's tables, in order."""
    _, _, rest = (ROOT / "ARCHITECTURE.md").read_text().partition(f"\n{heading}\n")
    section = rest.partition("\n## ")[0]
    return [Place(*match.groups()) for match in ROW.finditer(section)]


class Watched:
    """Notes the first entry into each place, from when the client enters the first one.

    The client has a thread of its own; agent and scheduler, in the main thread, are clients too.
    """

    def __init__(self, places: list[Place]) -> None:
        self._wanted = {(str(PACKAGE / place.file), place.function): place for place in places}
        self._first = places[0]
        self._lock = threading.Lock()
        self.entered: list[Place] = []
        self.calls = 0

    async def quiet(self) -> None:
        """Wait until the system has nothing to do."""
        calls = -1
        while calls != self.calls:
            calls = self.calls
            await asyncio.sleep(QUIET_SECONDS)

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        place = self._wanted.get((code.co_filename, code.co_name))
        if place is None:
            return
        self.calls += 1
        with self._lock:
            if place not in self.entered and (self.entered or self._begins(place)):
                self.entered.append(place)

    def _begins(self, place: Place) -> bool:
        return place == self._first and threading.current_thread() is not threading.main_thread()


T = TypeVar("T")
Walk: TypeAlias = Callable[[OneProcess, Watched], Awaitable[None]]


@contextmanager
def watching(places: list[Place]) -> Iterator[Watched]:
    watched = Watched(places)
    before = sys.getprofile()
    threading.setprofile(watched)
    sys.setprofile(watched)
    try:
        yield watched
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def once(folder: Path, places: list[Place], do: Walk, root_group: str = "") -> list[Place]:
    folder.mkdir(exist_ok=True)
    with watching(places) as watched:
        # Under a profiler nothing is done at once: Accepted would be posted by itself.
        async with one_process(folder, root_group=root_group, accept_delay_seconds=5) as system:
            await do(system, watched)
    return watched.entered


async def check(folder: Path, heading: str, do: Walk) -> None:
    """Twice, where a heartbeat of the node came in between."""
    places = [place for place in walk(heading) if not place.file.startswith("runtime/")]
    if await once(folder / "first", places, do) != places:
        assert await once(folder / "second", places, do) == places


async def type_command(system: OneProcess, *words: str, stdin: str = "") -> None:
    command = [*words, "--kubeconfig", str(system.kubeconfig)]
    done = await in_new_thread(lambda: CliRunner().invoke(cli, command, input=stdin))
    assert done.exit_code == 0, done.output


async def in_new_thread(work: Callable[[], T]) -> T:
    """A thread that was used before has the profiler of then."""
    with ThreadPoolExecutor(1) as threads:
        return await asyncio.get_running_loop().run_in_executor(threads, work)


async def resize_container(system: OneProcess, watched: Watched) -> None:
    await system.run_pod("db", system.container())
    await system.until_told("db", "Started")
    await watched.quiet()
    await type_command(system, "resize", "pod/db", "--cpu", "300m", "--memory", "64Mi", "--wait")


async def create_pod(system: OneProcess, watched: Watched) -> None:
    async with scheduling(system):
        await watched.quiet()
        await type_command(system, "apply", "-f", "-", stdin=MANIFEST)
        await system.until(await system.pod("db"), is_running)


async def resize_vm(system: OneProcess, watched: Watched) -> None:
    await system.run_pod("db", virtualMachine=VM)
    await system.until_told("db", "Started")
    await watched.quiet()
    await type_command(system, "resize", "pod/db", "--cpu", "2", "--memory", "1Gi", "--wait")


async def follow_pods(system: OneProcess, watched: Watched) -> None:
    await system.run_pod("db", system.container())
    await system.until_told("db", "Started")
    await watched.quiet()
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as tasks:
        following = until_labelled(system.kubeconfig)
        tasks.create_task(in_new_thread(lambda: asyncio.run(following)))
        await watched.quiet()
        while not watched.entered:
            await watched.quiet()
        labels = {"metadata": {"labels": {"seen": "yes"}}}
        admin = system.as_role(Role.ADMIN)
        kind = PatchType.MERGE
        await admin.patch(PODS, "db", labels, namespace=NAMESPACE, patch_type=kind)


async def until_labelled(kubeconfig: Path) -> None:
    """An informer of its own, in a thread of its own, until it has heard of the label."""
    labelled = asyncio.Event()

    def changed(delta: Delta) -> None:
        if delta.new is not None and delta.new["metadata"].get("labels"):
            labelled.set()

    client = await HttpClient.open(connection_from(kubeconfig), SystemClock())
    informer = Informer(client, PODS, context=system_context(), on_change=changed)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(informer.run())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await labelled.wait()
            running.cancel()
    finally:
        await client.close()


@asynccontextmanager
async def scheduling(system: OneProcess) -> AsyncIterator[None]:
    scheduler = Scheduler(system.as_role(Role.SCHEDULER), context=system_context())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(scheduler.run())
        yield
        running.cancel()


def is_running(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


MANIFEST = f"""
apiVersion: v1
kind: Pod
metadata: {{name: db}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: app
    image: {BUILT_IN_IMAGE}
    command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
    resources: {{requests: {{cpu: 100m, memory: 32Mi}}, limits: {{cpu: 100m, memory: 32Mi}}}}
"""
WALKS: dict[str, Walk] = {
    PATCH: resize_container,
    CREATION: create_pod,
    VM_RESIZE: resize_vm,
    WATCH_EVENT: follow_pods,
}


@pytest.mark.parametrize("heading", WALKS)
def test_each_file_is_named_once_and_has_the_function(heading: str) -> None:
    places = walk(heading)
    files = [place.file for place in places]
    assert len(files) >= (20 if heading == PATCH else 10)
    assert sorted(set(files)) == sorted(files)
    texts = {place: (PACKAGE / place.file).read_text() for place in places}
    assert [place for place, text in texts.items() if f"def {place.function}(" not in text] == []


@pytest.mark.parametrize("heading", WALKS)
async def test_a_walk_goes_the_way_the_architecture_says(tmp_path: Path, heading: str) -> None:
    await check(tmp_path, heading, WALKS[heading])


@pytest.mark.containers
async def test_one_patch_goes_that_way_down_to_the_cgroup(tmp_path: Path, root_group: str) -> None:
    async def resize(system: OneProcess, watched: Watched) -> None:
        await resize_container(system, watched)
        pod = await system.pod("db")
        group = group_path(root_group, ContainerGroup(pod["metadata"]["uid"], "app"))
        limits = open_cgroups(SystemClock()).read(group).limits
        assert (limits.cpu_quota_us, limits.memory_limit_bytes) == (30_000, 64 << 20)

    assert await once(tmp_path, of_this_machine(walk(PATCH)), resize, root_group) == (
        of_this_machine(walk(PATCH))
    )


@pytest.mark.containers
async def test_a_pod_is_created_that_way_down_to_its_process(
    tmp_path: Path, root_group: str
) -> None:
    places = of_this_machine(walk(CREATION))
    assert await once(tmp_path, places, create_pod, root_group) == places


def of_this_machine(places: list[Place]) -> list[Place]:
    version = open_cgroups(SystemClock()).version.name.lower()
    return [
        place._replace(file=place.file.replace("cgroups/v1.py", f"cgroups/{version}.py"))
        for place in places
    ]
