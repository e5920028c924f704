"""What Kubernetes' own suite checks of a resize (test/e2e/common/node/pod_resize.go), group by
group, on each runtime. As there, each resize is asked by a strategic merge patch of pods/X/resize,
looked for in the answer, in status, in the groups, in restart counts and in OOM scores, and then
taken back.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from system.groups import IS_V2, GroupFiles, group_of
from system.up import IMAGE, Up

pytestmark = pytest.mark.containers

Object = dict[str, Any]
MIB = 1 << 20
GUARANTEED_OOM_SCORE = -997


class Size(NamedTuple):
    """Empty: not set."""

    cpu: str = ""
    cpu_limit: str = ""
    memory: str = ""
    memory_limit: str = ""

    def resources(self) -> Object:
        sides = {
            "requests": {"cpu": self.cpu, "memory": self.memory},
            "limits": {"cpu": self.cpu_limit, "memory": self.memory_limit},
        }
        given = {side: {k: v for k, v in one.items() if v} for side, one in sides.items()}
        return {side: one for side, one in given.items() if one}


def equal(cpu: str, memory: str) -> Size:
    return Size(cpu, cpu, memory, memory)


class Made(NamedTuple):
    """A container of the pod under test. ``policy``: what restarts it, of cpu and memory."""

    name: str
    size: Size
    policy: tuple[str, ...] | None = None
    sidecar: bool = False

    def manifest(self) -> Object:
        made: Object = {
            "name": self.name,
            "image": IMAGE,
            "command": ["/bin/sh", "-c", "trap exit TERM; while :; do sleep 1; done"],
            "resources": self.size.resources(),
        }
        if self.policy is not None:
            made["resizePolicy"] = [
                {
                    "resourceName": one,
                    "restartPolicy": "RestartContainer" if one in self.policy else "NotRequired",
                }
                for one in ("cpu", "memory")
            ]
        return {**made, "restartPolicy": "Always"} if self.sidecar else made


class ResizedPod:
    """One pod, and how often each of its containers is to have been restarted."""

    def __init__(self, up: Up, made: list[Made]) -> None:
        self.up = up
        self.made = {one.name: one for one in made}
        self.sizes = {one.name: one.size for one in made}
        self.restarts = dict.fromkeys(self.made, 0)
        beside = [one.manifest() for one in made if one.sidecar]
        more: Object = {"initContainers": beside} if beside else {}
        containers = [one.manifest() for one in made if not one.sidecar]
        up.create_pod("testpod", containers, restartPolicy="OnFailure", hostNetwork=True, **more)
        self.check()

    def resize(self, **sizes: Size) -> None:
        """Ask, look, take back, look again."""
        before = {name: self.sizes[name] for name in sizes}
        self.ask(sizes)
        self.ask(before)

    def ask(self, sizes: dict[str, Size]) -> None:
        for name, size in sizes.items():
            self.restarts[name] += self._restarts(self.made[name], self.sizes[name], size)
            self.sizes[name] = size
        code, answer = self.up.patch_resize("testpod", {"spec": self._patch(sizes)})
        assert code == 200, answer
        assert self._told(answer["spec"], "containers", "initContainers") == self._wanted()
        self.check()

    def _restarts(self, made: Made, old: Size, new: Size) -> bool:
        changed = {
            "cpu": old[:2] != new[:2],
            "memory": old[2:] != new[2:],
        }
        return any(changed[resource] for resource in made.policy or ())

    def _patch(self, sizes: dict[str, Size]) -> Object:
        spec: Object = {}
        for name, size in sizes.items():
            kind = "initContainers" if self.made[name].sidecar else "containers"
            spec.setdefault(kind, []).append({"name": name, "resources": size.resources()})
        return spec

    def _wanted(self) -> Object:
        return {name: size.resources() for name, size in self.sizes.items()}

    def _told(self, part: Object, *lists: str) -> Object:
        return {
            one["name"]: one.get("resources") or {} for key in lists for one in part.get(key, [])
        }

    def check(self) -> None:
        self.up.wait_until(self._is_resized, f"status says {self._wanted()}")
        for made in self.made.values():
            self._check_group(made)

    def _is_resized(self) -> bool:
        """As WaitForPodResizeActuation: status, conditions, ready."""
        pod = self.up.pod("testpod")
        status = pod.get("status", {})
        told = self._told(status, "containerStatuses", "initContainerStatuses")
        conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
        under_way = {"PodResizePending", "PodResizeInProgress"} & conditions.keys()
        if told != self._wanted() or under_way or conditions.get("Ready") != "True":
            return False
        statuses = [*status["containerStatuses"], *status.get("initContainerStatuses", [])]
        allocated = {one["name"]: one.get("allocatedResources", {}) for one in statuses}
        assert allocated == {
            name: size.resources().get("requests", {}) for name, size in self.sizes.items()
        }
        assert {one["name"]: one["restartCount"] for one in statuses} == self.restarts
        return True

    def _is_guaranteed(self) -> bool:
        return all(size == equal(size.cpu, size.memory) for size in self.sizes.values())

    def _check_group(self, made: Made) -> None:
        size, group = self.sizes[made.name], group_of(self.up, "testpod", made.name)
        milli = int(size.cpu_limit.removesuffix("m") or 0)
        assert group.cpu_quota_us() == (max(1000, milli * 100) if milli else None), made.name
        limit = size.memory_limit.removesuffix("Mi")
        assert group.memory_limit_bytes() == (int(limit) * MIB if limit else None), made.name
        asked = int((size.cpu or size.cpu_limit).removesuffix("m") or 0)
        assert cpu_weight(group) == expected_weight(asked), made.name
        if self.restarts[made.name] and self._is_guaranteed() and may_lower_scores():
            score = Path(f"/proc/{group.main_pid()}/oom_score_adj").read_text()
            assert int(score) == GUARANTEED_OOM_SCORE


def may_lower_scores() -> bool:
    """CAP_SYS_RESOURCE: where root lacks it, their suite fails for this alone."""
    lines = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    return bool(int(lines["CapEff"], 16) & (1 << 24))


def cpu_weight(group: GroupFiles) -> int:
    return int(group._read("cpu", "cpu.weight" if IS_V2 else "cpu.shares"))


def expected_weight(milli: int) -> int:
    shares = max(2, milli * 1024 // 1000)
    return 1 + (shares - 2) * 9999 // 262142 if IS_V2 else shares


@contextlib.contextmanager
def resized_pod(up: Up, *made: Made) -> Iterator[ResizedPod]:
    yield ResizedPod(up, list(made))
    up.delete_pod("testpod")


NO_RESTART, CPU, MEMORY, BOTH = (), ("cpu",), ("memory",), ("cpu", "memory")
MATRIX = pytest.mark.matrix
GUARANTEED_CASES = [
    pytest.param(NO_RESTART, True, id="no restart, and its sidecar"),
    pytest.param(BOTH, True, id="cpu and memory restart, and its sidecar", marks=MATRIX),
    pytest.param(NO_RESTART, False, id="no restart", marks=MATRIX),
    pytest.param(CPU, False, id="cpu restart", marks=MATRIX),
    pytest.param(MEMORY, False, id="memory restart", marks=MATRIX),
    pytest.param(BOTH, False, id="cpu and memory restart", marks=MATRIX),
]
BURSTABLE_CASES = [
    pytest.param(NO_RESTART, id="no restart"),
    pytest.param(CPU, id="cpu restart", marks=MATRIX),
    pytest.param(MEMORY, id="memory restart", marks=MATRIX),
    pytest.param(BOTH, id="cpu and memory restart", marks=MATRIX),
]


@pytest.mark.parametrize(("policy", "with_sidecar"), GUARANTEED_CASES)
def test_guaranteed_pods_with_a_sidecar(
    up: Up, policy: tuple[str, ...], with_sidecar: bool
) -> None:
    """Theirs: "guaranteed qos - 1 container with resize policy", "resize initContainers"."""
    original = equal("20m", "35Mi")
    made = Made("c1", original, policy), Made("c1-init", original, policy, sidecar=True)
    with resized_pod(up, *made) as pod:
        for size in (
            equal("25m", "35Mi"),
            equal("20m", "40Mi"),
            equal("25m", "40Mi"),
            equal("25m", "30Mi"),
        ):
            if with_sidecar:
                pod.resize(**{"c1": size, "c1-init": size})
            else:
                pod.resize(c1=size)


def test_a_pod_and_its_sidecar_are_restarted_where_their_policy_says_so(up: Up) -> None:
    """One of the sizes above; the others are in the matrix, because each restart takes seconds."""
    original = equal("20m", "35Mi")
    made = Made("c1", original, MEMORY), Made("c1-init", original, CPU, sidecar=True)
    with resized_pod(up, *made) as pod:
        pod.ask({"c1": equal("25m", "40Mi"), "c1-init": equal("25m", "40Mi")})
        assert pod.restarts == {"c1": 1, "c1-init": 1}


def test_guaranteed_pods_with_several_containers(up: Up) -> None:
    """Net growth, net shrink, and different directions for cpu and memory."""

    def offset(index: int, cpu: int, memory: int) -> Size:
        return equal(f"{cpu + 2 * index}m", f"{memory + 2 * index}Mi")

    made = [Made(f"c{index + 1}", offset(index, 20, 35)) for index in range(3)]
    with resized_pod(up, *made) as pod:
        pod.resize(c1=offset(0, 25, 40), c2=offset(1, 25, 40), c3=offset(2, 15, 30))
        pod.resize(c1=offset(0, 25, 40), c2=offset(1, 15, 30), c3=offset(2, 15, 30))
        pod.resize(c1=offset(0, 25, 35), c2=offset(1, 15, 40), c3=offset(2, 25, 40))


@pytest.mark.parametrize("policy", BURSTABLE_CASES)
def test_burstable_pods(up: Up, policy: tuple[str, ...]) -> None:
    with resized_pod(up, Made("c1", Size("20m", "30m", "35Mi", "45Mi"), policy)) as pod:
        for size in (
            Size("25m", "30m", "35Mi", "45Mi"),
            Size("20m", "35m", "35Mi", "45Mi"),
            Size("20m", "30m", "40Mi", "45Mi"),
            Size("20m", "30m", "35Mi", "50Mi"),
            Size("25m", "35m", "40Mi", "50Mi"),
            Size("25m", "35m", "30Mi", "40Mi"),
            Size("15m", "35m", "40Mi", "40Mi"),
        ):
            pod.resize(c1=size)


def test_burstable_pods_get_requests_and_limits_they_did_not_have(up: Up) -> None:
    """Theirs: "6 containers - various operations performed (including adding limits and
    requests)". What was added cannot be taken back."""
    made = [
        Made("c1", Size(cpu="20m")),
        Made("c2", Size(memory="35Mi")),
        Made("c3", Size(cpu="20m", memory="35Mi")),
        Made("c4", Size(cpu="20m")),
        Made("c5", Size(memory="35Mi")),
    ]
    with resized_pod(up, *made) as pod:
        pod.ask(
            {
                "c1": Size(cpu="25m", cpu_limit="35m"),
                "c2": Size(memory="30Mi", memory_limit="50Mi"),
                "c3": Size(cpu="20m", memory="30Mi"),
                "c4": Size(cpu="15m", memory="35Mi"),
                "c5": Size(cpu="20m", memory="40Mi"),
            }
        )


def test_sizes_that_are_the_same_to_the_kernel(up: Up) -> None:
    """Theirs: "resize with equivalents". Status says what was asked."""
    with resized_pod(up, Made("c1", Size(cpu="2m", cpu_limit="10m"))) as pod:
        pod.resize(c1=Size(cpu="1m", cpu_limit="5m"))


def test_a_limit_below_usage(up: Up) -> None:
    """Theirs: "decrease memory limit below usage". A little less is done, far too little is an
    error, and the way back is open."""
    with resized_pod(up, Made("c1", Size(memory="35Mi", memory_limit="35Mi"))) as pod:
        viable = Size(memory="30Mi", memory_limit="30Mi")
        pod.ask({"c1": viable})
        tiny = {"memory": "10Ki"}
        asked = {"name": "c1", "resources": {"requests": tiny, "limits": tiny}}
        code, answer = up.patch_resize("testpod", {"spec": {"containers": [asked]}})
        assert code == 200, answer

        def held_up() -> Any:
            conditions = up.pod("testpod").get("status", {}).get("conditions", [])
            assert not [one for one in conditions if one["type"] == "PodResizePending"]
            found = [one for one in conditions if one["type"] == "PodResizeInProgress"]
            return found and found[0].get("reason") == "Error" and found[0]

        condition = up.wait_until(held_up, "the resize is held up")
        assert re.search(r"memory limit \(\d+\) below current usage", condition["message"])
        (status,) = up.pod("testpod")["status"]["containerStatuses"]
        assert status["resources"] == viable.resources()
        pod.ask({"c1": Size(memory="35Mi", memory_limit="35Mi")})


def test_replaced_through_its_subresource(up: Up) -> None:
    """Theirs: "resize pod via the replace endpoint", and what GET of pods/X/resize answers."""
    path = "/api/v1/namespaces/default/pods/testpod"
    with resized_pod(up, Made("c1", Size(cpu="20m", memory="35Mi"))) as pod:
        _, before = up.request("GET", path)
        assert before["metadata"]["generation"] == 1
        desired = Size(cpu="25m", memory="40Mi")
        before["spec"]["containers"][0]["resources"] = desired.resources()
        code, answer = up.request("PUT", f"{path}/resize", before)
        assert code == 200, answer
        assert answer["metadata"]["generation"] == 2
        pod.sizes["c1"] = desired
        pod.check()
        assert up.request("GET", f"{path}/resize")[1] == up.request("GET", path)[1]


ON_42 = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
RESTARTS: dict[str, tuple[str, int, Object, bool]] = {
    "rule-match": ("Never", 42, {"restartPolicy": "Never", "restartPolicyRules": ON_42}, True),
    "rule-mismatch": ("Never", 1, {"restartPolicy": "Never", "restartPolicyRules": ON_42}, False),
    "container-never": ("Always", 1, {"restartPolicy": "Never"}, False),
    "container-always": ("Never", 1, {"restartPolicy": "Always"}, True),
    "pod-always": ("Always", 1, {}, True),
}


def test_restarts_by_policy_and_rule(up: Up) -> None:
    """Theirs: "Container Restart Rules" (test/e2e/node/pods.go). A pod of which nothing starts
    again has ended, whatever its own policy says."""
    path = "/api/v1/namespaces/default/pods"
    for name, (policy, code, own, _) in RESTARTS.items():
        container = {"name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", f"exit {code}"]}
        spec = {"restartPolicy": policy, "containers": [{**container, **own}], "hostNetwork": True}
        answer = up.request("POST", path, {"metadata": {"name": name}, "spec": spec})
        assert answer[0] == 201, answer

    def outcome(name: str) -> bool | None:
        status = up.pod(name).get("status", {})
        restarts = [one["restartCount"] for one in status.get("containerStatuses", [])]
        return True if any(restarts) else (False if status.get("phase") == "Failed" else None)

    for name, (*_, restarts) in RESTARTS.items():
        up.wait_until(lambda name=name: outcome(name) is not None, f"{name} has ended")
        assert outcome(name) is restarts, name
