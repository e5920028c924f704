"""Rows of `livesize get`: what a person wants to see of each kind. Pure; ``now`` is an argument."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from livesize.api.conditions import find_condition, is_true
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.quantity import memory_bytes
from livesize.api.resources import resizable_of
from livesize.api.vm_status import VmState, resizable_statuses_of, statuses_of
from livesize.api.workload_resize import hold_of, template_of
from livesize.api.workload_status import current_status
from livesize.cli.output import Table
from livesize.cli.resize.held_memory import held_memory
from livesize.cli.sizes import format_requests, format_size, pod_sizes
from livesize.cli.vm_words import cell_words, memory_words, vcpu_words

if TYPE_CHECKING:
    from livesize.api.columns import Column as PrintedColumn


class TableColumn(msgspec.Struct, frozen=True):
    header: str
    cell: Callable[[Object, float], str]
    wide: bool = False


def table_of(
    resource: Resource, objects: Sequence[Object], now: float, *, wide: bool, all_namespaces: bool
) -> Table:
    columns = [column for column in columns_of(resource) if wide or not column.wide]
    if all_namespaces and resource.namespaced:
        columns = [TableColumn("NAMESPACE", lambda obj, _: namespace_of(obj)), *columns]
    return Table(
        tuple(column.header for column in columns),
        tuple(tuple(column.cell(obj, now) for column in columns) for obj in objects),
    )


def columns_of(resource: Resource) -> tuple[TableColumn, ...]:
    """Our own where there are any, else those that kubectl prints, with sizes beside them."""
    ours = _COLUMNS.get(resource.kind)
    if ours is not None:
        return ours
    from livesize.api.kinds.registry import kind_of

    known = [_as_kubectl(column) for column in kind_of(resource).columns]
    narrow = [column for column in known if not column.wide]
    more = _MORE_COLUMNS.get(resource.kind, ())
    return (*narrow, *more, *(column for column in known if column.wide))


def _as_kubectl(column: PrintedColumn) -> TableColumn:
    def cell(obj: Object, now: float) -> str:
        return str(column.cell(obj, now)) or "-"

    return TableColumn(column.name.upper(), cell, wide=column.priority > 0)


def format_age(stamp: str, now: float) -> str:
    """Like kubectl: 45s, 3m12s, 5h2m, 3d4h; unknown without a time."""
    if not stamp:
        return "<unknown>"
    seconds = max(0, int(now - dt.datetime.fromisoformat(stamp).timestamp()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 180:
        rest = f"{seconds % 60}s" if minutes < 10 and seconds % 60 else ""
        return f"{minutes}m{rest}"
    if hours < 48:
        return f"{hours}h{minutes % 60}m" if hours < 8 and minutes % 60 else f"{hours}h"
    return f"{days}d{hours % 24}h" if days < 8 and hours % 24 else f"{days}d"


def pod_status(pod: Object) -> str:
    """One word: the phase, or what stands in its way."""
    if lookup(pod, "metadata", "deletionTimestamp"):
        return "Terminating"
    for status in statuses_of(pod):
        for state in ("waiting", "terminated"):
            reason = lookup(status, "state", state, "reason")
            if reason:
                return str(reason)
    if lookup(pod, "status", "virtualMachineStatus", "state") == VmState.STARTING:
        return VmState.STARTING.value  # QEMU runs; the guest has not been heard yet
    return str(lookup(pod, "status", "reason") or lookup(pod, "status", "phase", default="Pending"))


def resize_word(pod: Object) -> str:
    """Where a resize stands, from the conditions of today's Kubernetes, and IBM's where it is not
    judged yet; "-" when nothing is. ``Waiting``: for memory that the workload holds."""
    pending = find_condition(pod, "PodResizePending")
    if pending is not None:
        return str(pending.get("reason") or "Pending")
    progress = find_condition(pod, "PodResizeInProgress")
    if progress is not None:
        held = held_memory(str(progress.get("message") or ""))
        return "Waiting" if held else str(progress.get("reason") or "InProgress")
    resized = find_condition(pod, "PodResized")
    word = "" if resized is None else str(resized.get("status"))
    return word if word in ("Requested", "Accepted") else "-"


def workload_resize_word(workload: Object) -> str:
    """How many pods have the size, while a resize is under way; "-" when none is."""
    status = current_status(workload)
    if status is not None and status.updated < status.pods:
        return f"{status.updated}/{status.pods}"
    if hold_of(workload) is None:
        return "-"
    return "Requested" if status is None else "InProgress"


def _template_size(workload: Object, _: float) -> str:
    return format_size(pod_sizes(template_of(workload)).desired)


def _kind(pod: Object, _: float) -> str:
    return "vm" if lookup(pod, "spec", "virtualMachine") else "container"


def _ready(pod: Object, _: float) -> str:
    ready = sum(1 for status in resizable_statuses_of(pod) if status.get("ready"))
    return f"{ready}/{len(resizable_of(pod))}"


def _restarts(pod: Object, _: float) -> str:
    return str(sum(int(status.get("restartCount") or 0) for status in resizable_statuses_of(pod)))


def _guest_cpu(pod: Object, _: float) -> str:
    return vcpu_words(pod)


def _guest_memory(pod: Object, _: float) -> str:
    return memory_words(pod)


def _guest_cells(pod: Object, _: float) -> str:
    return cell_words(pod)


def _whole_mi(memory: str | float | None) -> str:
    """Whole Mi, rounded down: people do not read eleven digits."""
    return "-" if memory is None else f"{memory_bytes(memory) // 2**20}Mi"


def _node_status(node: Object, _: float) -> str:
    word = "Ready" if is_true(node, "Ready") else "NotReady"
    return f"{word},SchedulingDisabled" if lookup(node, "spec", "unschedulable") else word


def _node_memory(node: Object, _: float) -> str:
    return _whole_mi(lookup(node, "status", "allocatable", "memory"))


def _event_object(event: Object, _: float) -> str:
    about = lookup(event, "involvedObject", default={})
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _text(*path: str, default: str = "-") -> Callable[[Object, float], str]:
    return lambda obj, _: str(lookup(obj, *path, default=default))


def _age(*path: str) -> Callable[[Object, float], str]:
    return lambda obj, now: format_age(str(lookup(obj, *path, default="")), now)


_NAME = TableColumn("NAME", lambda obj, _: name_of(obj))
_AGE = TableColumn("AGE", _age("metadata", "creationTimestamp"))

_COLUMNS: dict[str, tuple[TableColumn, ...]] = {
    "Pod": (
        _NAME,
        TableColumn("KIND", _kind),
        TableColumn("READY", _ready),
        TableColumn("STATUS", lambda pod, _: pod_status(pod)),
        TableColumn("RESTARTS", _restarts),
        TableColumn("AGE", _age("metadata", "creationTimestamp")),
        TableColumn("DESIRED", lambda pod, _: format_size(pod_sizes(pod).desired)),
        TableColumn("ALLOCATED", lambda pod, _: format_requests(pod_sizes(pod).allocated)),
        TableColumn("ACTUAL", lambda pod, _: format_size(pod_sizes(pod).actual)),
        TableColumn("RESIZE", lambda pod, _: resize_word(pod)),
        TableColumn("NODE", _text("spec", "nodeName"), wide=True),
        TableColumn("QOS", _text("status", "qosClass"), wide=True),
        TableColumn("GENERATION", _text("metadata", "generation"), wide=True),
        TableColumn("GUEST CPU", _guest_cpu, wide=True),
        TableColumn("GUEST MEMORY", _guest_memory, wide=True),
        TableColumn("GUEST CELLS", _guest_cells, wide=True),
    ),
    "Node": (
        _NAME,
        TableColumn("STATUS", _node_status),
        _AGE,
        TableColumn("CPU", _text("status", "allocatable", "cpu")),
        TableColumn("MEMORY", _node_memory),
        TableColumn("VERSION", _text("status", "nodeInfo", "kubeletVersion")),
        TableColumn("KERNEL", _text("status", "nodeInfo", "kernelVersion"), wide=True),
        TableColumn("RUNTIME", _text("status", "nodeInfo", "containerRuntimeVersion"), wide=True),
    ),
    "Event": (
        TableColumn("LAST SEEN", _age("lastTimestamp")),
        TableColumn("TYPE", _text("type")),
        TableColumn("REASON", _text("reason")),
        TableColumn("OBJECT", _event_object),
        TableColumn("COUNT", _text("count", default="1"), wide=True),
        TableColumn("MESSAGE", _text("message")),
    ),
}
_SIZE = TableColumn("SIZE", _template_size)
_RESIZE = TableColumn("RESIZE", lambda workload, _: workload_resize_word(workload))
_MORE_COLUMNS = {
    "StatefulSet": (_SIZE, _RESIZE),
    "Deployment": (_SIZE, _RESIZE),
    "ReplicaSet": (_SIZE,),  # its Deployment is what is resized
}
