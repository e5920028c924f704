"""IBM's table of policies, actions and update strategies, on three real replicas for each cell.

Each cell is a workload of its own, resized by kubectl: `apply`, `set resources`, `patch` and `edit`
in turn. The kernel is the witness: pid and start time of each container's process, and the limits
of its group. All workloads of a column are changed at once, each by one command. "Not able to
resize in place" is a size that would change the QoS class: IBM, Related issues, 1.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from system.groups import group_of, start_time
from system.up import Up, container

pytestmark = [pytest.mark.workloads, pytest.mark.usefixtures("kubectl_1_32")]

REPLICAS = 3
BEFORE, AFTER = {"cpu": "50m", "memory": "16Mi"}, {"cpu": "80m", "memory": "24Mi"}
QUOTA_AND_LIMIT = {"before": (5_000, 16 << 20), "after": (8_000, 24 << 20)}
COMMANDS = ("apply", "set", "patch", "edit")
STATUS = "livesize.dev/resize-status"
Object = dict[str, Any]


class Outcome(enum.Enum):
    LIVE = "the same process, with the new size"
    CONTAINER = "the same pod, its container restarted"
    RECREATED = "another pod"
    KEPT = "nothing is touched, and status says why"
    AWAITS = "nothing is touched, and status says that the user's delete is waited for"


class Row(NamedTuple):
    """``action`` None: no action specified. ``fits``: the pods can be resized in place."""

    quote: str
    policy: str
    action: str | None
    fits: bool
    on_delete: Outcome
    rolling_update: Outcome


_RESTART = "Resize resource with restart (with delete command | with allowed spec update commands)"
_LIVE = "Resize resource live only (with allowed spec update commands)"
_LIVE_PREFERRED = "Resize resource with live resize preferred"
_UNABLE_LIVE = (
    "resize resource with restart (with delete command | managed by controller) if not able to"
    " resize live"
)
_CONTAINER = "Resize resource only with container restart (with allowed spec update commands)"
_CONTAINER_PREFERRED = "Resize resource with container restart preferred"
_UNABLE_IN_PLACE = (
    "resize resource with restart (with delete command | managed by controller) if not able to"
    " resize in place"
)
_LIVE_POLICY, _CONTAINER_POLICY = "LiveResizeable", "ContainerRestartOnly"

# What the table says in its columns OnDelete and RollingUpdate.
TABLE = {
    "restart-only": Row(_RESTART, "RestartOnly", None, True, Outcome.AWAITS, Outcome.RECREATED),
    "restart-only-in-place": Row(
        _RESTART, "RestartOnly", "InPlaceResize", True, Outcome.AWAITS, Outcome.RECREATED
    ),
    "action-restart": Row(
        _RESTART, _LIVE_POLICY, "Restart", True, Outcome.AWAITS, Outcome.RECREATED
    ),
    "action-restart-container": Row(
        _RESTART, _CONTAINER_POLICY, "Restart", True, Outcome.AWAITS, Outcome.RECREATED
    ),
    "live": Row(_LIVE, _LIVE_POLICY, "InPlaceResize", True, Outcome.LIVE, Outcome.LIVE),
    "live-unable": Row(_LIVE, _LIVE_POLICY, "InPlaceResize", False, Outcome.KEPT, Outcome.KEPT),
    "live-preferred": Row(
        _LIVE_PREFERRED, _LIVE_POLICY, "LiveResizePreferred", True, Outcome.LIVE, Outcome.LIVE
    ),
    "live-preferred-unable": Row(
        _UNABLE_LIVE,
        *(_LIVE_POLICY, "LiveResizePreferred", False, Outcome.AWAITS, Outcome.RECREATED),
    ),
    "live-no-action": Row(_LIVE_PREFERRED, _LIVE_POLICY, None, True, Outcome.LIVE, Outcome.LIVE),
    "live-no-action-unable": Row(
        _UNABLE_LIVE, _LIVE_POLICY, None, False, Outcome.AWAITS, Outcome.RECREATED
    ),
    "container": Row(
        *(_CONTAINER, _CONTAINER_POLICY, "InPlaceResize", True),
        *(Outcome.CONTAINER, Outcome.CONTAINER),
    ),
    "container-unable": Row(
        _CONTAINER, _CONTAINER_POLICY, "InPlaceResize", False, Outcome.KEPT, Outcome.KEPT
    ),
    "container-preferred": Row(
        *(_CONTAINER_PREFERRED, _CONTAINER_POLICY, "InPlaceResizePreferred", True),
        *(Outcome.CONTAINER, Outcome.CONTAINER),
    ),
    "container-preferred-unable": Row(
        *(_UNABLE_IN_PLACE, _CONTAINER_POLICY, "InPlaceResizePreferred", False),
        *(Outcome.AWAITS, Outcome.RECREATED),
    ),
    "container-no-action": Row(
        *(_CONTAINER_PREFERRED, _CONTAINER_POLICY, None, True),
        *(Outcome.CONTAINER, Outcome.CONTAINER),
    ),
    "container-no-action-unable": Row(
        _UNABLE_IN_PLACE, _CONTAINER_POLICY, None, False, Outcome.AWAITS, Outcome.RECREATED
    ),
}
COLUMNS = ("OnDelete", "RollingUpdate", "Deployment")


class Life(NamedTuple):
    """Of one container: by these a restart is known."""

    uid: str
    pid: int
    began: int
    restarts: int


class Cell:
    """One workload. A Deployment is rolled out as RollingUpdate says."""

    def __init__(self, up: Up, name: str, column: str) -> None:
        self.up, self.name, self.row = up, name, TABLE[name]
        self.is_set = column != "Deployment"
        self._column = column
        self.outcome = self.row.on_delete if column == "OnDelete" else self.row.rolling_update
        self.command = COMMANDS[([*TABLE].index(name) + COLUMNS.index(column)) % len(COMMANDS)]
        self.before: dict[str, Life] = {}

    # What is typed

    @property
    def annotations(self) -> dict[str, str]:
        return {"resizeAction": self.row.action} if self.row.action else {}

    @property
    def sizes(self) -> Object:
        return {"limits": AFTER, "requests": AFTER} if self.row.fits else {"limits": AFTER}

    def manifest(self, *, is_resized: bool) -> Object:
        """`set resources` writes no annotations: there the action stands on it from the start."""
        app = container("app", BEFORE["cpu"], BEFORE["memory"], command="exec sleep 3600")
        app["resources"]["resizePolicy"] = dict.fromkeys(BEFORE, self.row.policy)
        app["resources"] |= self.sizes if is_resized else {}
        spec: Object = {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": self.name}},
            "template": {
                "metadata": {"labels": {"app": self.name}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [app]},
            },
        }
        if self.is_set:
            spec |= {"serviceName": self.name, "podManagementPolicy": "Parallel"}
            spec["updateStrategy"] = {"type": self._column}
        has_action = is_resized or self.command == "set"
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet" if self.is_set else "Deployment",
            "metadata": {"name": self.name, "annotations": self.annotations if has_action else {}},
            "spec": spec,
        }

    def resize(self) -> None:
        kind = "sts" if self.is_set else "deploy"
        if self.command == "apply":
            text = json.dumps(self.manifest(is_resized=True))
            self.up.kubectl("apply", "-f", "-", stdin=text)
        elif self.command == "set":
            sides = [f"--{side}={_listed(size)}" for side, size in self.sizes.items()]
            self.up.kubectl("set", "resources", f"{kind}/{self.name}", *sides)
        elif self.command == "patch":
            self.up.kubectl("patch", kind, self.name, "--patch", json.dumps(self.patch()))
        else:
            self.up.kubectl("edit", kind, self.name)

    def patch(self) -> Object:
        app = {"name": "app", "resources": self.sizes}
        return {
            "metadata": {"annotations": self.annotations},
            "spec": {"template": {"spec": {"containers": [app]}}},
        }

    # What is seen

    def workload(self) -> Object:
        kind = "statefulsets" if self.is_set else "deployments"
        return self.up.request("GET", f"/apis/apps/v1/namespaces/default/{kind}/{self.name}")[1]

    def pods(self) -> list[str]:
        """Those that are ready; fewer than there should be while one leaves or comes."""
        path = f"/api/v1/namespaces/default/pods?labelSelector=app%3D{self.name}"
        found = self.up.request("GET", path)[1]["items"]
        ready = [
            one["metadata"]["name"]
            for one in found
            if any(c["type"] == "Ready" and c["status"] == "True" for c in _conditions(one))
            and "deletionTimestamp" not in one["metadata"]
        ]
        return sorted(ready) if len(ready) == len(found) else []

    def lives(self) -> dict[str, Life]:
        return {name: self._life(name) for name in self.pods()}

    def _life(self, name: str) -> Life:
        pod, pid = self.up.pod(name), group_of(self.up, name, "app").main_pid()
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        return Life(pod["metadata"]["uid"], pid, start_time(pid), restarts)

    def limits(self) -> dict[str, tuple[int | None, int | None]]:
        """CPU quota and memory limit of each container's group."""
        groups = {name: group_of(self.up, name, "app") for name in self.pods()}
        return {
            name: (group.cpu_quota_us(), group.memory_limit_bytes())
            for name, group in groups.items()
        }

    def are_sized(self, which: str) -> bool:
        try:
            limits = list(self.limits().values())
        except (AssertionError, OSError):
            return False  # one of them has left meanwhile
        return limits == [QUOTA_AND_LIMIT[which]] * REPLICAS

    def unfinished(self) -> dict[str, str]:
        """Pod → reason, as the status of the workload tells it."""
        text = self.workload()["metadata"]["annotations"].get(STATUS)
        told = json.loads(text)["unfinished"] if text else []
        return {one["pod"]: one["reason"] for one in told}

    def is_settled(self) -> bool:
        """Its own controller says so too, and nothing is held."""
        workload = self.workload()
        status, metadata = workload["status"], workload["metadata"]
        return (
            "livesize.dev/held" not in metadata["annotations"]
            and status["observedGeneration"] == metadata["generation"]
            and status.get("updatedReplicas") == status.get("readyReplicas") == REPLICAS
        )


def _conditions(pod: Object) -> list[Object]:
    return list(pod["status"].get("conditions", []))


def _listed(size: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in size.items())


EDITOR = """
import json, pathlib, sys, yaml
file = pathlib.Path(sys.argv[1])
workload = yaml.safe_load(file.read_text())
patch = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
patch = patch[workload["metadata"]["name"]]
workload["metadata"].setdefault("annotations", {}).update(patch["metadata"]["annotations"])
app, new = (one["spec"]["template"]["spec"]["containers"][0] for one in (workload, patch))
app["resources"].update(new["resources"])
file.write_text(yaml.safe_dump(workload))
"""


# All cells of a column that has every outcome but RECREATED; the others are for `make test-all`.
@pytest.fixture(
    scope="module",
    params=["OnDelete", *(pytest.param(one, marks=pytest.mark.matrix) for one in COLUMNS[1:])],
)
def cells(request: pytest.FixtureRequest, up: Up) -> Iterator[dict[str, Cell]]:
    """A whole column, running; and every resize of it requested."""
    made = {name: Cell(up, name, request.param) for name in TABLE}
    objects = [cell.manifest(is_resized=False) for cell in made.values()]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    editor = up.directory / "editor.py"
    editor.write_text(EDITOR)
    patches = {name: cell.patch() for name, cell in made.items()}
    editor.with_suffix(".json").write_text(json.dumps(patches))
    with pytest.MonkeyPatch.context() as environment, ThreadPoolExecutor(4) as threads:
        environment.setenv("KUBE_EDITOR", f"{sys.executable} {editor}")
        try:
            up.kubectl("apply", "-f", "-", stdin=text)
            for cell in made.values():
                up.wait_until(lambda cell=cell: cell.are_sized("before"), f"{cell.name} runs", 90)
                cell.before = cell.lives()
            list(threads.map(Cell.resize, made.values()))
            yield made
        finally:
            up.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=text)
            for cell in made.values():
                up.wait_until(lambda cell=cell: _is_gone(cell), f"{cell.name} is gone", 60)


def _is_gone(cell: Cell) -> bool:
    path = f"/api/v1/namespaces/default/pods?labelSelector=app%3D{cell.name}"
    return not cell.up.request("GET", path)[1]["items"]


@pytest.mark.parametrize("name", TABLE)
def test_each_cell(cells: dict[str, Cell], name: str) -> None:
    cell = cells[name]
    match cell.outcome:
        case Outcome.KEPT | Outcome.AWAITS:
            check_untouched(cell)
        case _:
            cell.up.wait_until(
                lambda: cell.are_sized("after") and cell.is_settled(), f"{name}: {cell.row.quote}"
            )
            check_resized(cell)


def check_resized(cell: Cell) -> None:
    before, after = cell.before, cell.lives()
    if cell.outcome is Outcome.LIVE:
        assert after == before
        return
    if cell.outcome is Outcome.CONTAINER:
        assert {name: life.uid for name, life in after.items()} == {
            name: life.uid for name, life in before.items()
        }
        assert [life.restarts for life in after.values()] == [1] * REPLICAS
    else:
        assert not {life.uid for life in after.values()} & {life.uid for life in before.values()}
        assert [life.restarts for life in after.values()] == [0] * REPLICAS
    former = {(life.pid, life.began) for life in before.values()}
    assert not {(life.pid, life.began) for life in after.values()} & former
    if cell.is_set:
        began = [after[f"{cell.name}-{ordinal}"].began for ordinal in range(REPLICAS)]
        assert began == sorted(began, reverse=True), "in reverse ordinal sequence"


def check_untouched(cell: Cell) -> None:
    reason = "Invalid" if cell.outcome is Outcome.KEPT else "AwaitsDeletion"
    said = dict.fromkeys(cell.before, reason)
    cell.up.wait_until(lambda: cell.unfinished() == said, f"{cell.name}: status says {reason}")
    assert cell.lives() == cell.before
    assert cell.are_sized("before")
    if cell.outcome is Outcome.AWAITS:
        check_delete_command(cell, said)


def check_delete_command(cell: Cell, said: dict[str, str]) -> None:
    """ "resize resource with restart (with delete command)": this pod, and no other one."""
    deleted = f"{cell.name}-1"
    cell.up.kubectl("delete", "pod", deleted)
    others = {name: life for name, life in cell.before.items() if name != deleted}
    cell.up.wait_until(
        lambda: (
            len(cell.pods()) == REPLICAS
            and cell.unfinished()
            == {name: reason for name, reason in said.items() if name != deleted}
        ),
        f"{deleted} has come back, and the status says that the others wait",
    )
    after, limits = cell.lives(), cell.limits()
    assert after.pop(deleted).uid != cell.before[deleted].uid
    assert after == others
    assert limits.pop(deleted) == QUOTA_AND_LIMIT["after"]
    assert set(limits.values()) == {QUOTA_AND_LIMIT["before"]}
