"""What containerd is asked for and what it says, without a containerd."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import hierarchy_mounts
from livesize.runtime.containerd import messages
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.containerd.cri_client import (
    CALL_SECONDS,
    ContainerdUnreachableError,
    CriClient,
    plain_words,
)
from livesize.runtime.containerd.kubelet import has_kubelet_pods, kubelet_at
from livesize.runtime.containerd.requests import (
    CONFIG_ANNOTATION,
    HASH_LABEL,
    HASH_WITHOUT_RESOURCES_LABEL,
    NODE_LABEL,
    POD_LABEL,
    container_config,
    cpu_resources,
    memory_resources,
    sandbox_config,
    with_image_user,
)
from livesize.runtime.containerd.views import UNKNOWN_EXIT_CODE, container_view, pod_of
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerPhase,
    PodConfig,
    StartRefusedError,
)
from livesize.runtime.security import DEFAULT_CAPABILITIES

MIB = 1 << 20
LIMITS = KernelLimits(512, 50_000, 64 * MIB)
POD = PodConfig("uid-1", "default", "db", LIMITS)
CONFIG = ContainerConfig(
    pod_uid="uid-1",
    name="main",
    image="localhost/x:1",
    command=("sh",),
    args=("-c", "true"),
    env=(("A", "1"),),
    working_dir="/tmp",
    hostname="db",
    limits=LIMITS,
    attempt=3,
    hash="h1",
    hash_without_resources="h2",
)


def asked(
    config: ContainerConfig, version: CgroupVersion = CgroupVersion.V1, pod: PodConfig = POD
) -> messages.ProtobufMessage:
    return container_config(
        config, pod, node_uid="node", image_id="sha256:1", log_path="main/3.log", version=version
    )


@pytest.mark.parametrize(
    ("weight", "quota_us", "version", "shares", "quota", "unified"),
    [
        (512, 20_000, CgroupVersion.V1, 512, 20_000, {}),
        (None, 20_000, CgroupVersion.V1, 0, 20_000, {}),
        (512, None, CgroupVersion.V1, 512, -1, {}),
        (39, 20_000, CgroupVersion.V2, 0, 20_000, {"cpu.weight": "39"}),
        (None, None, CgroupVersion.V2, 0, -1, {}),
    ],
)
def test_a_change_of_cpu_touches_nothing_else(
    weight: int | None,
    quota_us: int | None,
    version: CgroupVersion,
    shares: int,
    quota: int,
    unified: dict[str, str],
) -> None:
    made = cpu_resources(weight, quota_us, version)
    assert (made.cpu_shares, made.cpu_quota, made.cpu_period) == (shares, quota, 100_000)
    assert dict(made.unified) == unified
    assert (made.memory_limit_in_bytes, made.oom_score_adj) == (0, 0)


@given(st.one_of(st.none(), st.integers(4096, 1 << 50)))
def test_a_change_of_memory_touches_nothing_else(limit_bytes: int | None) -> None:
    made = memory_resources(limit_bytes)
    assert made.memory_limit_in_bytes == (-1 if limit_bytes is None else limit_bytes)
    assert (made.cpu_quota, made.cpu_period, made.cpu_shares, dict(made.unified)) == (0, 0, 0, {})


class Listening:
    """A client that only notes what it is asked."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}

    async def call(self, name: str, **fields: Any) -> None:
        assert name == "UpdateContainerResources"
        self.fields = fields


@pytest.mark.parametrize(("memory", "limit_bytes"), [(False, 0), (True, 64 * MIB)])
async def test_cpu_and_memory_are_told_in_one_call(memory: bool, limit_bytes: int) -> None:
    client = Listening()
    containers = Containers(
        cast("CriClient", client), "n1", Path("/logs"), CgroupVersion.V1, SystemClock()
    )
    await containers.tell_limits("c1", LIMITS, memory=memory, patient=False)
    told = messages.LinuxContainerResources(
        cpu_period=100_000,
        cpu_quota=50_000,
        cpu_shares=512,
        memory_limit_in_bytes=limit_bytes,
    )
    assert client.fields == {"container_id": "c1", "linux": told, "patient": False}


async def test_who_is_not_patient_does_not_wait_for_a_containerd_that_is_away(
    tmp_path: Path,
) -> None:
    client = CriClient(tmp_path / "nobody.sock", SystemClock())
    try:
        async with asyncio.timeout(CALL_SECONDS / 3):
            with pytest.raises(ContainerdUnreachableError):
                await client.call("UpdateContainerResources", patient=False, container_id="c1")
    finally:
        await client.close()


@pytest.mark.parametrize(("score", "sent"), [(None, 1), (0, 1), (-997, -997), (500, 500)])
def test_a_score_of_zero_is_never_sent(score: int | None, sent: int) -> None:
    """Zero is "not given", and then a runtime may leave the score of its own shim."""
    config = msgspec.structs.replace(CONFIG, oom_score_adj=score)
    assert asked(config).linux.resources.oom_score_adj == sent


def test_a_container_without_limits_is_made_without() -> None:
    config = msgspec.structs.replace(CONFIG, limits=KernelLimits(2, None, None))
    resources = asked(config).linux.resources
    assert (resources.cpu_quota, resources.memory_limit_in_bytes) == (0, 0)


@pytest.mark.parametrize(("host", "mode"), [(True, messages.NODE_NETWORK), (False, 0)])
def test_pod_and_container_agree_about_the_network(host: bool, mode: int) -> None:
    pod = msgspec.structs.replace(POD, host_network=host)
    sandbox = sandbox_config(
        pod, node_uid="node", attempt=0, cgroup_parent="/a/b", log_directory=""
    )
    container = asked(CONFIG, pod=pod)
    assert sandbox.linux.security_context.namespace_options.network == mode
    assert container.linux.security_context.namespace_options.network == mode
    assert sandbox.linux.cgroup_parent == "/a/b"
    assert bool(sandbox.hostname) is not host


@pytest.mark.parametrize(
    ("user", "group", "sent"), [(None, None, (None, None)), (5, None, (5, None)), (5, 6, (5, 6))]
)  # fmt: skip
def test_user_and_group_are_sent(
    user: int | None, group: int | None, sent: tuple[int | None, int | None]
) -> None:
    config = msgspec.structs.replace(CONFIG, run_as_user=user, run_as_group=group)
    security = asked(config).linux.security_context
    found = tuple(
        getattr(security, name).value if security.HasField(name) else None
        for name in ("run_as_user", "run_as_group")
    )
    assert found == sent


@pytest.mark.parametrize(("image_user", "user"), [("", 0), ("1000", 1000), ("7:8", 7)])
def test_beside_a_group_the_images_user_stays(image_user: str, user: int) -> None:
    """CRI takes a group only beside a user; root instead of the image's own would be a surprise."""
    config = msgspec.structs.replace(CONFIG, run_as_group=6)
    assert with_image_user(config, image_user).run_as_user == user
    with pytest.raises(StartRefusedError, match="set runAsUser too"):
        with_image_user(config, "web")


def test_powers_are_sent_by_name() -> None:
    security = asked(CONFIG).linux.security_context
    assert list(security.capabilities.drop_capabilities) == ["ALL"]
    assert set(security.capabilities.add_capabilities) == DEFAULT_CAPABILITIES
    assert security.seccomp.profile_type == 0
    config = msgspec.structs.replace(
        CONFIG,
        add_capabilities=("NET_ADMIN",),
        drop_capabilities=("ALL",),
        seccomp_unconfined=True,
    )
    security = asked(config).linux.security_context
    assert list(security.capabilities.add_capabilities) == ["NET_ADMIN"]
    assert security.seccomp.profile_type == 1


def status(state: int, **fields: object) -> messages.ProtobufMessage:
    """What containerd answers about CONFIG."""
    config = asked(CONFIG)
    answer = messages.ContainerStatusResponse()
    answer.status.id = "id-1"
    answer.status.metadata.CopyFrom(config.metadata)
    answer.status.state = state
    answer.status.labels.update(dict(config.labels))
    answer.status.annotations.update(dict(config.annotations))
    answer.status.image_ref = "sha256:1"
    answer.status.created_at = 1_000_000_000
    for name, value in fields.items():
        setattr(answer.status, name, value)
    answer.info["info"] = json.dumps({"pid": 77})
    return answer


def test_what_was_asked_is_found_again_in_the_answer() -> None:
    view = container_view(status(messages.CONTAINER_RUNNING, started_at=2_500_000_000))
    assert view is not None
    assert (view.name, view.attempt, view.image, view.hash, view.hash_without_resources) == (
        "main",
        3,
        "localhost/x:1",
        "h1",
        "h2",
    )
    assert (view.pod_uid, view.phase, view.pid) == ("uid-1", ContainerPhase.RUNNING, 77)
    assert (view.started_at, view.finished_at, view.exit_code) == (2.5, None, None)


def test_both_hashes_are_labels_of_the_container() -> None:
    """IBM: a new additional hash [...] (and that is also stored as a one of the container's
    labels)."""
    labels = dict(asked(CONFIG).labels)
    assert labels[HASH_LABEL] == "h1"
    assert labels[HASH_WITHOUT_RESOURCES_LABEL] == "h2"


def test_a_container_from_before_there_were_such_labels_is_known() -> None:
    answer = status(messages.CONTAINER_RUNNING)
    for label in (HASH_LABEL, HASH_WITHOUT_RESOURCES_LABEL):
        del answer.status.labels[label]
    before = {"image": "i", "hash": "old", "hash_without_resources": "old too"}
    answer.status.annotations[CONFIG_ANNOTATION] = json.dumps(before)
    view = container_view(answer)
    assert view is not None
    assert (view.hash, view.hash_without_resources) == ("old", "old too")


@pytest.mark.parametrize(
    ("state", "reason", "code", "oom"),
    [
        (messages.CONTAINER_EXITED, "Completed", 7, False),
        (messages.CONTAINER_EXITED, "OOMKilled", 7, True),
        (messages.CONTAINER_UNKNOWN, "", UNKNOWN_EXIT_CODE, False),
    ],
)
def test_how_it_ended(state: int, reason: str, code: int, oom: bool) -> None:
    answer = status(state, exit_code=7, reason=reason, finished_at=3_000_000_000)
    view = container_view(answer)
    assert view is not None
    assert (view.phase, view.exit_code, view.oom_killed) == (ContainerPhase.EXITED, code, oom)
    assert (view.pid, view.finished_at) == (0, 3.0)


def test_what_never_ran_or_is_not_ours_is_no_container() -> None:
    assert container_view(status(messages.CONTAINER_CREATED)) is None
    strange = status(messages.CONTAINER_RUNNING)
    del strange.status.annotations[CONFIG_ANNOTATION]
    assert container_view(strange) is None


def test_a_pod_is_found_again_in_its_sandbox() -> None:
    config = sandbox_config(POD, node_uid="node", attempt=0, cgroup_parent="a", log_directory="")
    sandbox = messages.PodSandbox(annotations=dict(config.annotations))
    assert pod_of(sandbox) == POD
    assert dict(config.labels) == {NODE_LABEL: "node", POD_LABEL: "uid-1"}
    assert pod_of(messages.PodSandbox()) is None


def kubelet(proc: Path, *words: str, comm: str = "kubelet") -> None:
    folder = proc / "42"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cmdline").write_text("\0".join(("/usr/bin/kubelet", *words)))


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        pytest.param((), True, id="it does not say which runtime"),
        pytest.param(("--container-runtime-endpoint=unix://{socket}",), True, id="this one"),
        pytest.param(("--container-runtime-endpoint", "{socket}"), True, id="in two words"),
        pytest.param(("--container-runtime-endpoint=unix:///run/other",), False, id="another"),
    ],
)
def test_a_containerd_of_a_kubelet(tmp_path: Path, words: tuple[str, ...], refused: bool) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))
        kubelet(tmp_path / "proc", *(word.format(socket=path) for word in words))
        assert bool(kubelet_at(path, tmp_path / "proc")) is refused


def test_other_processes_are_no_kubelets(tmp_path: Path) -> None:
    kubelet(tmp_path, comm="sh")
    assert kubelet_at(tmp_path / "s", tmp_path) == ""


def test_pods_of_a_kubelet_are_told_from_ours() -> None:
    theirs, ours = {"io.kubernetes.pod.uid": "1"}, {NODE_LABEL: "n", "io.kubernetes.pod.uid": "2"}
    assert has_kubelet_pods([ours, theirs], NODE_LABEL)
    assert not has_kubelet_pods([ours, {"made": "by hand"}], NODE_LABEL)


def test_containerd_speaks_plainly() -> None:
    words = "failed to start: rpc error: code = Unknown desc = runc: no such file: unknown"
    assert plain_words(words) == "failed to start: runc: no such file"
    assert plain_words("") == "no reason was given"


def test_every_hierarchy_is_found_also_those_without_controllers() -> None:
    lines = [
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
        "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    ]
    assert hierarchy_mounts("\n".join(lines)) == (
        "/sys/fs/cgroup/cpu",
        "/sys/fs/cgroup/systemd",
        "/sys/fs/cgroup/unified",
    )
