"""What a pod asks for besides containers and sizes: a deadline, gates, hosts, last words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from livesize.agent.admission.support import unsupported_field
from livesize.agent.pods.config import hosts_file
from livesize.agent.pods.plan import deadline_at
from livesize.api.conditions import find_condition, is_true
from livesize.api.objects import Object, lookup
from livesize.api.runtime_features import RuntimeFeatures
from livesize.runtime.fake_machine import Behaviour
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

LONG_AGO = "2020-01-01T00:00:00Z"
GATE = "example.com/open"


def status_of(world: World, *path: str | int) -> Any:
    return lookup(world.api.pod("db"), "status", *path)


# spec.activeDeadlineSeconds


@pytest.mark.parametrize(
    ("seconds", "started", "ends"),
    [
        (None, LONG_AGO, float("inf")),
        (30, None, float("inf")),
        (30, "1970-01-01T00:00:10Z", 40.0),
    ],
)
def test_a_deadline_counts_from_the_start(seconds: Any, started: Any, ends: float) -> None:
    pod = {"spec": {"activeDeadlineSeconds": seconds}, "status": {"startTime": started}}
    assert deadline_at(pod) == ends


async def test_a_pod_beyond_its_deadline_fails_and_stays_so(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), activeDeadlineSeconds=100)
    uid = await world.running("db")
    await world.api.edit("db", ("status", "startTime"), LONG_AGO)
    await world.until(lambda: status_of(world, "phase") == "Failed", "it failed")
    assert status_of(world, "reason") == "DeadlineExceeded"
    assert status_of(world, "message").startswith("Pod was active on the node longer than")
    assert "terminated" in status_of(world, "containerStatuses", 0, "state")
    assert "DeadlineExceeded" in world.api.event_reasons("db")
    assert world.attempt(uid) == 0, "restartPolicy Always does not start it again"
    assert uid not in {entry.uid for entry in await stopped(world)}, "its room is free"


async def stopped(world: World) -> Any:
    await world.stop()
    return await world.checkpointed()


async def test_a_deadline_set_later_counts_too(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    await world.api.edit("db", ("status", "startTime"), LONG_AGO)
    await world.api.edit("db", ("spec", "activeDeadlineSeconds"), 5)
    await world.until(lambda: status_of(world, "reason") == "DeadlineExceeded", "it failed")


# spec.readinessGates


async def test_a_pod_is_ready_when_its_gates_are_open(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), readinessGates=[{"conditionType": GATE}])
    await world.running("db")
    pod = world.api.pod("db")
    assert is_true(pod, "ContainersReady")
    ready = find_condition(pod, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    assert ready["message"] == (
        f'corresponding condition of pod readiness gate "{GATE}" does not exist.'
    )
    await said(world, "False")
    words = f'the status of pod readiness gate "{GATE}" is not "True", but False'
    await world.until(lambda: ready_message(world) == words, "it says so")
    await said(world, "True")
    await world.until(lambda: is_true(world.api.pod("db"), "Ready"), "it is ready")
    assert is_true(world.api.pod("db"), GATE), "the other's condition stays"


async def said(world: World, status: str) -> None:
    others = [one for one in status_of(world, "conditions") if one["type"] != GATE]
    await world.api.edit(
        "db", ("status", "conditions"), [*others, {"type": GATE, "status": status}]
    )


def ready_message(world: World) -> str:
    found = find_condition(world.api.pod("db"), "Ready")
    return "" if found is None else str(found.get("message"))


# spec.hostAliases


def test_the_hosts_of_a_pod() -> None:
    aliases = [{"ip": "192.0.2.7", "hostnames": ["db.example", "db"]}, {"ip": "2001:db8::1"}]
    spec = {"hostAliases": aliases, "hostname": "web"}
    pod: Object = {"spec": spec, "status": {"podIP": "10.0.0.9"}}
    lines = hosts_file(pod).splitlines()
    assert "10.0.0.9\tweb" in lines
    assert "127.0.0.1\tlocalhost" in lines
    assert lines[-2:] == ["192.0.2.7\tdb.example\tdb", "2001:db8::1"]
    assert hosts_file({"spec": {}}) == ""


async def test_hosts_are_mounted_into_every_container(world: World) -> None:
    await world.start()
    aliases = [{"ip": "192.0.2.7", "hostnames": ["db.example"]}]
    await world.api.run_pod("db", container("a"), container("b"), hostAliases=aliases)
    uid = await world.running("db")
    for name in ("a", "b"):
        assert (
            "192.0.2.7\tdb.example\n" in Path(mounted(world, uid, name, "/etc/hosts")).read_text()
        )


async def test_hosts_of_a_running_pod_follow_its_peers(world: World) -> None:
    """In place: its containers have the file, not a name of it."""
    await world.start()
    await world.api.run_pod("db", container("a"), hostname="db-0", subdomain="dbs")
    uid = await world.running("db")
    hosts = Path(mounted(world, uid, "a", "/etc/hosts"))
    own = "db-0.dbs.default.svc.cluster.local\tdb-0.dbs.default\tdb-0.dbs\tdb-0\n"
    assert own in hosts.read_text()
    inode = hosts.stat().st_ino
    line = "10.0.0.2\tdb-1.dbs.default.svc.cluster.local\tdb-1.dbs.default\tdb-1.dbs\tdb-1\n"
    for peers, count in (('{"db-0":"10.0.0.1","db-1":"10.0.0.2"}', 1), ('{"db-0":"10.0.0.1"}', 0)):
        await world.api.edit("db", ("metadata", "annotations"), {"livesize.dev/peers": peers})
        await world.until(
            lambda count=count: hosts.read_text().count(line) == count, "the file follows"
        )
        assert own in hosts.read_text()
        assert hosts.stat().st_ino == inode


def mounted(world: World, uid: str, name: str, target: str) -> str:
    mounts = world.machine.configs[uid, name].mounts
    return next(one.source for one in mounts if one.target == target)


# terminationMessagePath and terminationMessagePolicy


async def ended(world: World, words: bytes, code: int = 1, **more: Any) -> str:
    """Run a container that says something and ends; return its message."""
    await world.start()
    more = {"command": ["work"], **more}
    await world.api.run_pod("db", container(**more), restartPolicy="Never")
    uid = await world.running("db")
    path = more.get("terminationMessagePath", "/dev/termination-log")
    Path(mounted(world, uid, "app", path)).write_bytes(words)
    world.machine.exit(uid, "app", code)
    await world.until(lambda: status_of(world, "phase") in ("Failed", "Succeeded"), "it ended")
    return str(status_of(world, "containerStatuses", 0, "state", "terminated").get("message", ""))


async def test_what_a_container_says_of_its_end(world: World) -> None:
    assert await ended(world, b"the disk is full\n") == "the disk is full\n"


async def test_at_another_path_and_of_a_success(world: World) -> None:
    where = {"terminationMessagePath": "/run/why"}
    assert await ended(world, b"nothing left to do", 0, **where) == "nothing left to do"


async def test_only_the_end_of_a_long_message_counts(world: World) -> None:
    said = await ended(world, b"x" * 100_000 + b"end" + b"\xff")
    assert len(said) == 4096
    assert said.endswith("end\ufffd"), "what is no UTF-8 is replaced"


@pytest.mark.parametrize(
    ("policy", "code", "words"),
    [
        ("FallbackToLogsOnError", 1, "it broke\n"),
        ("FallbackToLogsOnError", 0, ""),
        ("File", 1, ""),
    ],
)
async def test_the_log_stands_in_where_the_policy_says(
    world: World, policy: str, code: int, words: str
) -> None:
    world.machine.behaviours["work",] = Behaviour(output="it broke\n")
    assert await ended(world, b"", code, terminationMessagePolicy=policy) == words


async def test_the_end_before_is_told_after_a_restart(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    Path(mounted(world, uid, "app", "/dev/termination-log")).write_text("first")
    world.machine.exit(uid, "app", 1)
    await world.until(
        lambda: status_of(world, "containerStatuses", 0, "restartCount") == 1, "started again"
    )
    last = status_of(world, "containerStatuses", 0, "lastState", "terminated")
    assert last["message"] == "first"
    assert Path(mounted(world, uid, "app", "/dev/termination-log")).read_text() == ""


# What not every runtime can do

SYSCTL = {"securityContext": {"sysctls": [{"name": "kernel.shmmax", "value": "1"}]}}
NET_SYSCTL = {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}}
NODE_SYSCTL = {"securityContext": {"sysctls": [{"name": "vm.swappiness", "value": "1"}]}}
PRIVILEGED = {"containers": [{"securityContext": {"privileged": True}}]}
PORT = {"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]}
ALL = RuntimeFeatures(privileged=True, sysctls=True, own_network=True)
NONE = RuntimeFeatures()


@pytest.mark.parametrize(
    ("spec", "features", "field"),
    [
        (PRIVILEGED, NONE, "spec.containers[0].securityContext.privileged"),
        (PRIVILEGED, ALL, ""),
        (SYSCTL, NONE, "spec.securityContext.sysctls[0]"),
        (SYSCTL, ALL, ""),
        (NET_SYSCTL, ALL, ""),
        ({**NET_SYSCTL, "hostNetwork": True}, ALL, "spec.securityContext.sysctls[0]"),
        (NODE_SYSCTL, ALL, "spec.securityContext.sysctls[0]"),
        (PORT, NONE, ""),
        (PORT, ALL, "spec.containers[0].ports"),
        ({**PORT, "hostNetwork": True}, ALL, ""),
    ],
)
def test_a_node_refuses_what_its_runtime_cannot_do(
    spec: Object, features: RuntimeFeatures, field: str
) -> None:
    assert unsupported_field({"spec": spec}, features).partition(":")[0] == field
