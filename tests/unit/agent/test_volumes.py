"""Volumes and variables of pods: what a container finds, and what it waits for."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from livesize.agent.volumes.conversion import memory_size, wanted_volume
from livesize.agent.volumes.environment import ReferenceContext, environment
from livesize.agent.volumes.fields import field_value, resource_value
from livesize.agent.volumes.sources import ContainerConfigError
from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.secret import SECRETS
from livesize.api.objects import Object
from livesize.api.resize_state import resize_state
from livesize.runtime.fake import Behaviour, FakeRuntime
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerPhase,
    ContainerView,
    RuntimeCallError,
)
from livesize.runtime.volumes.interface import FileTree, VolumeFile
from unit.agent.world import CrashAt, World, container, quick_settings
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1024 * 1024
POD: Object = {
    "metadata": {
        "name": "db",
        "namespace": "default",
        "uid": "u",
        "labels": {"app": "db", "tier": 'a"b'},
    },
    "spec": {"nodeName": "node-1"},
}
SIZES = {"app": {"name": "app", "requests": {"cpu": "300m"}, "limits": {"memory": "64Mi"}}}
NODE = {"cpu": "4", "memory": "16Gi"}
SETTINGS: Object = {"metadata": {"name": "settings"}, "data": {"colour": "blue", "1st": "one"}}
KEYS: Object = {"metadata": {"name": "keys"}, "data": {"pin": base64.b64encode(b"42").decode()}}
AROUND = ReferenceContext(
    POD, {("configmaps", "settings"): SETTINGS, ("secrets", "keys"): KEYS}, SIZES, NODE
)


def given(**source: Object) -> Object:
    return {"name": "X", "valueFrom": source}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (given(configMapKeyRef={"name": "settings", "key": "colour"}), "blue"),
        (given(secretKeyRef={"name": "keys", "key": "pin"}), "42"),
        (given(fieldRef={"fieldPath": "metadata.labels['app']"}), "db"),
        (given(fieldRef={"fieldPath": "spec.nodeName"}), "node-1"),
        (given(resourceFieldRef={"resource": "requests.cpu"}), "1"),
        (given(resourceFieldRef={"resource": "requests.cpu", "divisor": "1m"}), "300"),
        (given(resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}), "64"),
        (given(resourceFieldRef={"resource": "limits.cpu"}), "4"),
        (given(secretKeyRef={"name": "none", "key": "pin", "optional": True}), None),
        (given(configMapKeyRef={"name": "settings", "key": "no", "optional": True}), None),
    ],
)
def test_where_a_variable_comes_from(source: Object, value: str | None) -> None:
    found = dict(environment({"name": "app", "env": [source]}, AROUND))
    assert found.get("X") == value


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (given(configMapKeyRef={"name": "none", "key": "k"}), 'configmap "none" not found'),
        (given(secretKeyRef={"name": "keys", "key": "k"}), "couldn't find key k in secret keys"),
        (
            given(resourceFieldRef={"resource": "limits.cpu", "containerName": "z"}),
            "no container 'z'",
        ),
    ],
)
def test_what_is_missing_is_said(source: Object, problem: str) -> None:
    with pytest.raises(ContainerConfigError, match=problem):
        environment({"name": "app", "env": [source]}, AROUND)


def test_all_of_an_object_with_a_prefix_and_env_above_it() -> None:
    told = {
        "name": "app",
        "envFrom": [{"prefix": "S_", "configMapRef": {"name": "settings"}}],
        "env": [{"name": "S_colour", "value": "red"}, {"name": "B", "value": "$(S_1st)"}],
    }
    assert dict(environment(told, AROUND)) == {"S_colour": "red", "S_1st": "one", "B": "one"}
    bare = {"name": "app", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    assert dict(environment(bare, AROUND)) == {"colour": "blue"}  # "1st" cannot be a name


def test_labels_as_a_file() -> None:
    assert field_value(POD, "metadata.labels") == 'app="db"\ntier="a\\"b"'


def test_a_request_that_is_not_set_is_the_limit() -> None:
    assert resource_value(SIZES["app"], "requests.memory", "1Mi", NODE) == "64"


def test_a_projected_volume_is_made_of_several_sources() -> None:
    volume = {
        "name": "all",
        "projected": {
            "defaultMode": 0o400,
            "sources": [
                {"configMap": {"name": "settings", "items": [{"key": "colour", "path": "a/c"}]}},
                {"secret": {"name": "keys"}},
                {
                    "downwardAPI": {
                        "items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]
                    }
                },
            ],
        },
    }
    assert wanted_volume(volume, AROUND, 0) == FileTree(
        "all",
        (
            VolumeFile("a/c", b"blue", 0o400),
            VolumeFile("pin", b"42", 0o400),
            VolumeFile("n", b"db", 0o400),
        ),
        secret=True,
    )


@pytest.mark.parametrize(
    ("size_limit", "pod_bytes", "size"),
    [("8Mi", 64 * MIB, 8 * MIB), (None, 64 * MIB, 64 * MIB), (None, None, 512 * MIB)],
)
def test_how_large_a_volume_in_memory_is(
    size_limit: str | None, pod_bytes: int | None, size: int
) -> None:
    medium: Object = {"medium": "Memory"}
    folder = medium if size_limit is None else {**medium, "sizeLimit": size_limit}
    assert memory_size({"name": "v", "emptyDir": folder}, pod_bytes, 1024 * MIB) == size


# The agent as a whole.


def config_of(world: World, uid: str, name: str = "app") -> ContainerConfig:
    return world.machine.configs[uid, name]


def view_of(world: World, uid: str) -> ContainerView:
    return world.machine.pods[uid].containers["app"]


def memory_path(world: World) -> Path:
    (path,) = (point for point, size in world.mounts.points.items() if size)
    return path


CACHE: Object = {"name": "cache", "emptyDir": {"medium": "Memory"}}
MOUNT: Object = {"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}


async def test_a_container_waits_for_its_config_map_and_starts_when_it_is_there(
    world: World,
) -> None:
    await world.start()
    await world.api.run_pod(
        "db",
        container(volumeMounts=[{"name": "config", "mountPath": "/etc/db"}]),
        volumes=[{"name": "config", "configMap": {"name": "settings"}}],
    )

    def waiting() -> Object:
        statuses = world.api.pod("db").get("status", {}).get("containerStatuses") or [{}]
        found: Object = statuses[0].get("state", {}).get("waiting") or {}
        return found

    await world.until(
        lambda: waiting().get("reason") == "CreateContainerConfigError", "it says what is missing"
    )
    assert 'configmap "settings" not found' in waiting()["message"]
    await world.api.create(CONFIG_MAPS, SETTINGS, "default")
    uid = await world.running("db")
    mount, termination_messages = config_of(world, uid).mounts
    assert termination_messages.target == "/dev/termination-log"
    assert (mount.target, mount.read_only) == ("/etc/db", True)
    file = Path(mount.source) / "colour"
    assert file.read_text() == "blue"
    await world.api.patch(
        CONFIG_MAPS, "settings", {"data": {"colour": "green"}}, namespace="default"
    )
    await world.until(lambda: file.read_text() == "green", "the file follows its object")
    await world.api.mark_deleted("db")
    await world.until(lambda: not world.api.has("db"), "gone")
    assert not file.exists()


async def test_secrets_reach_the_environment(world: World) -> None:
    await world.start()
    await world.api.create(SECRETS, KEYS, "default")
    source = {"secretKeyRef": {"name": "keys", "key": "pin"}}
    await world.api.run_pod("db", container(env=[{"name": "PIN", "valueFrom": source}]))
    uid = await world.running("db")
    assert config_of(world, uid).env == (("PIN", "42"),)


async def test_a_restart_does_not_need_the_api_server(world: World) -> None:
    await world.start()
    await world.api.create(SECRETS, KEYS, "default")
    source = {"secretKeyRef": {"name": "keys", "key": "pin"}}
    await world.api.run_pod("db", container(env=[{"name": "PIN", "valueFrom": source}]))
    uid = await world.running("db")
    world.client.is_down = True
    world.machine.exit(uid, "app", 1)
    await world.until(lambda: view_of(world, uid).attempt == 1, "restarted")
    assert config_of(world, uid).env == (("PIN", "42"),)
    world.client.is_down = False


async def test_a_volume_in_memory_grows_before_the_pod_and_shrinks_after_it(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(**MOUNT), volumes=[CACHE])
    await world.running("db")
    path = memory_path(world)
    assert world.mounts.points[path] == 64 * MIB

    def steps() -> list[str]:
        return [step["name"] for step in resize_state(world.api.pod("db"))["steps"]]

    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert world.mounts.points[path] == 128 * MIB
    assert steps().index("volume:cache:size") < steps().index("pod:memory")
    (path / "held").write_bytes(bytes(40 * MIB))
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Error")
    assert (
        "volume cache: size (33554432) below what it holds"
        in (resize_state(world.api.pod("db"))["message"])
    )
    (path / "held").unlink()
    await world.phase("db", "Done")
    assert world.mounts.points[path] == 32 * MIB
    assert steps()[-2:] == ["volume:cache:size", "actuated"]


async def test_a_size_limit_stays_whatever_the_pod_gets(world: World) -> None:
    await world.start()
    fixed = {"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}
    await world.api.run_pod("db", container(**MOUNT), volumes=[fixed])
    await world.running("db")
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert world.mounts.points[memory_path(world)] == 8 * MIB


RESTARTS: Object = {
    "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
}


async def run_with_memory_volume(world: World, *, prepared: bool) -> str:
    """A container that a resize of its memory restarts. ``prepared``: an init container mounts
    the volume too."""
    world.machine.behaviours["prepare",] = Behaviour(exit_code=0)
    await world.start()
    await world.api.run_pod(
        "db",
        container(**MOUNT, **RESTARTS),
        initContainers=[container("prepare", command=["prepare"], **MOUNT)] if prepared else [],
        volumes=[CACHE],
    )
    return await world.running("db")


@pytest.mark.parametrize("prepared", [False, True])
async def test_files_in_memory_are_cleared_when_a_resize_restarts_the_container(
    world: World, prepared: bool
) -> None:
    """ARK: "Kubelet will clear out any files in emptyDir upon Container restart"."""
    uid = await run_with_memory_volume(world, prepared=prepared)
    file = memory_path(world) / "left"
    file.write_text("by the first")
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert view_of(world, uid).attempt == 1
    assert not file.exists()
    steps = [step["name"] for step in resize_state(world.api.pod("db"))["steps"]]
    assert steps.index("stop:app") < steps.index("clear:app") < steps.index("start:app")


@pytest.mark.parametrize("prepared", [False, True])
async def test_files_in_memory_are_kept_when_the_container_ended_by_itself(
    world: World, prepared: bool
) -> None:
    """Kubernetes: "a container crashing does not remove a Pod from a node. The data in an emptyDir
    volume is safe across container crashes"."""
    uid = await run_with_memory_volume(world, prepared=prepared)
    file = memory_path(world) / "left"
    file.write_text("by the first")
    world.machine.exit(uid, "app", 1)
    await world.until(lambda: view_of(world, uid).attempt == 1, "restarted")
    assert file.read_text() == "by the first"


async def test_a_live_resize_leaves_files_in_memory_alone(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(**MOUNT), volumes=[CACHE])
    await world.running("db")
    file = memory_path(world) / "kept"
    file.write_text("in use")
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert file.read_text() == "in use"


async def test_files_in_memory_do_not_hold_up_the_shrink_that_clears_them(world: World) -> None:
    """They are gone before the pod's group and the volume shrink: the container that could remove
    them does not run any more."""
    uid = await run_with_memory_volume(world, prepared=False)
    (memory_path(world) / "held").write_bytes(bytes(40 * MIB))
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Done")
    assert view_of(world, uid).attempt == 1
    assert world.mounts.points[memory_path(world)] == 32 * MIB
    steps = [step["name"] for step in resize_state(world.api.pod("db"))["steps"]]
    assert steps.index("clear:app") < steps.index("volume:cache:size"), "at the first attempt"


async def test_a_container_that_its_worker_starts_for_a_resize_is_cleared_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop failed after the container had ended: the next turn starts it again while the
    resize itself waits for its next attempt."""
    world.settings = quick_settings(30.0, recheck_seconds=0.1)
    uid = await run_with_memory_volume(world, prepared=False)
    file = memory_path(world) / "left"
    file.write_text("by the first")
    stop = FakeRuntime.stop_container

    async def stop_and_fail(runtime: FakeRuntime, uid: str, name: str, grace: float) -> None:
        await stop(runtime, uid, name, grace)
        raise RuntimeCallError("the answer was lost")

    monkeypatch.setattr(FakeRuntime, "stop_container", stop_and_fail)
    await world.api.resize("db", "app", memory="128Mi")
    await world.until(lambda: view_of(world, uid).attempt == 1, "restarted")
    assert not file.exists()
    assert world.api.phase("db") != "Done"


@pytest.mark.parametrize("point", ["resize/stop:app/after", "resize/clear:app/after"])
async def test_an_agent_that_dies_after_the_stop_clears_before_the_start(
    world: World, point: str
) -> None:
    await world.start(CrashAt(point))
    await world.api.run_pod("db", container(**MOUNT, **RESTARTS), volumes=[CACHE])
    uid = await world.running("db")
    file = memory_path(world) / "left"
    file.write_text("by the first")
    await world.api.resize("db", "app", memory="128Mi")
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert view_of(world, uid).attempt == 1
    assert not file.exists()


async def test_a_pod_whose_volume_holds_more_than_it_may_fails(world: World) -> None:
    await world.start()
    await world.api.run_pod(
        "db",
        container(volumeMounts=[{"name": "scratch", "mountPath": "/s"}]),
        volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
    )
    uid = await world.running("db")
    folder = Path(config_of(world, uid).mounts[0].source)
    (folder / "small").write_bytes(bytes(MIB // 2))
    await asyncio.sleep(0.3)
    assert world.api.pod("db")["status"]["phase"] == "Running"
    (folder / "large").write_bytes(bytes(MIB))
    await world.until(lambda: world.api.pod("db")["status"]["phase"] == "Failed", "evicted")
    status = world.api.pod("db")["status"]
    assert status["reason"] == "Evicted"
    assert status["message"] == 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi".'
    assert view_of(world, uid).phase is ContainerPhase.EXITED
    assert world.agent is not None
    assert world.agent._admission.ledger.get(uid) is None


async def test_volumes_of_a_pod_that_went_while_no_agent_looked_are_removed(world: World) -> None:
    await world.start()
    await world.api.run_pod(
        "db",
        container(volumeMounts=[{"name": "scratch", "mountPath": "/s"}]),
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
    uid = await world.running("db")
    folder = Path(config_of(world, uid).mounts[0].source)
    assert folder.is_dir()
    await world.stop()
    await world.api.vanish("db")
    del world.machine.pods[uid]  # only the volumes are left of it
    await world.start()
    await world.until(lambda: not folder.exists(), "cleared away")


@pytest.mark.parametrize("point", ["remove/remove/after", "remove/volumes/after"])
async def test_an_agent_that_dies_while_it_clears_away_leaves_nothing(
    world: World, point: str
) -> None:
    await world.start(CrashAt(point))
    await world.api.run_pod("db", container(**MOUNT), volumes=[CACHE])
    await world.running("db")
    folder = memory_path(world)
    await world.api.mark_deleted("db")
    await world.crashed()
    await world.start()
    await world.until(lambda: not world.api.has("db"), "gone")
    assert not folder.exists()
    assert world.mounts.points == {}


async def test_an_agent_that_dies_after_an_init_container_goes_on_with_the_next(
    world: World,
) -> None:
    world.machine.behaviours["prepare",] = Behaviour(exit_code=0)
    await world.start(CrashAt("start/two/before"))
    both = [container(name, command=["prepare"]) for name in ("one", "two")]
    await world.api.run_pod("db", container(), initContainers=both)
    await world.crashed()
    await world.start()
    uid = await world.running("db")
    assert {name: world.attempt(uid, name) for name in ("one", "two", "app")} == {
        "one": 0,
        "two": 0,
        "app": 0,
    }
