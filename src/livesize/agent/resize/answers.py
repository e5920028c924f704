"""Words of a resize: the bodies for POST pods/X/resizing, and what its events say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.report import judged_status
from livesize.agent.shape import Progress
from livesize.api.objects import Object, name_of, namespace_of, uid_of
from livesize.api.quantity import format_whole_mi
from livesize.api.resize_state import REQUEST_STATUS, ResizePhase
from livesize.api.resources import sidecars_of
from livesize.api.times import format_micro_time
from livesize.machinery.steps import StepOutcome, StepRecord
from livesize.runtime.interface import MemoryInUseError

RUNNING = "Running"  # of a step that is not done yet


def refusal_body(
    pod: Object, phase: ResizePhase, generation: int, message: str, allocation: Allocation
) -> Object:
    """Deferred or Infeasible; the status catches up with the generation that was judged. What is
    allocated goes along: a promise that this request has overtaken may never have been told."""
    return {
        **_body(pod, phase, generation),
        "message": message,
        "allocated": list(allocation.allocated),
        "status": judged_status(pod),
    }


def accept_body(pod: Object, allocation: Allocation, message: str = "") -> Object:
    """Allocated, durable on this node, and being applied. ``message``: there is more to say."""
    return {
        **_body(pod, ResizePhase.IN_PROGRESS, allocation.generation),
        "message": message,
        "allocated": list(allocation.allocated),
        "status": judged_status(pod),
    }


def progress_body(
    pod: Object,
    allocation: Allocation,
    progress: Progress,
    records: Sequence[StepRecord],
    status: Object,
) -> Object:
    """Still being applied: what was done, the step that takes long, and how far it is."""
    running: Object = {"name": progress.step, "outcome": RUNNING, "message": progress.message}
    if records:
        began = records[-1].started_at + records[-1].seconds
        running["time"] = format_micro_time(began)
    return {
        **_body(pod, ResizePhase.IN_PROGRESS, allocation.generation),
        "message": progress.message,
        "allocated": list(allocation.allocated),
        "steps": [*steps_json(records), running],
        "status": _present(status),
    }


def failure_message(records: Sequence[StepRecord], failure: Exception) -> str:
    """What the machine said; where memory is held, first who holds how much, in whole Mi."""
    if not isinstance(failure, MemoryInUseError):
        return str(failure)
    failed = next(one.name for one in records if one.outcome is StepOutcome.FAILED)
    kind, _, rest = failed.partition(":")
    holder = rest.partition(":")[0] if kind == "container" else "the pod"
    held = format_whole_mi(failure.usage_bytes)
    to_free = format_whole_mi(failure.to_go_bytes)
    return f"{holder} holds {held}, {to_free} to free: {failure}"


def error_body(
    pod: Object, allocation: Allocation, message: str, records: Iterable[StepRecord], status: Object
) -> Object:
    return {
        **_body(pod, ResizePhase.ERROR, allocation.generation),
        "message": message,
        "allocated": list(allocation.allocated),
        "steps": steps_json(records),
        "status": _present(status),
    }


def waiting_body(
    pod: Object, allocation: Allocation, message: str, records: Iterable[StepRecord], status: Object
) -> Object:
    """Applied as far as it can be; ``message`` says what has yet to run at its size."""
    content = error_body(pod, allocation, message, records, status)
    return content | _body(pod, ResizePhase.IN_PROGRESS, allocation.generation)


def done_body(
    pod: Object,
    allocation: Allocation,
    records: Iterable[StepRecord],
    status: Object,
    message: str = "",
) -> Object:
    """``message``: there is more to say than that it is done."""
    return {
        **_body(pod, ResizePhase.DONE, allocation.generation),
        **({"message": message} if message else {}),
        "allocated": list(allocation.allocated),
        "steps": steps_json(records),
        "status": _present(status),
    }


def steps_json(records: Iterable[StepRecord]) -> list[Object]:
    steps: list[Object] = []
    for record in records:
        step: Object = {
            "name": record.name,
            "time": format_micro_time(record.started_at),
            "seconds": round(record.seconds, 6),
            "outcome": record.outcome,
        }
        steps.append({**step, "message": record.message} if record.message else step)
    return steps


def event_message(
    what: str, pod: Object, sizes: Iterable[Object], generation: int, error: str | None = None
) -> str:
    """For instance: Pod resize started: {"containers":[…],"generation":7} (facts D.1)."""
    sidecars = sidecars_of(pod)
    starting: list[Object] = []
    containers: list[Object] = []
    for size in sizes:
        resources = {key: value for key, value in size.items() if key != "name"}
        (starting if size["name"] in sidecars else containers).append(
            {"name": size["name"], "resources": resources}
        )
    content: Object = {"initContainers": starting} if starting else {}
    content |= {"containers": containers, "generation": generation}
    if error is not None:
        content["error"] = error
    return f"Pod resize {what}: {orjson.dumps(content).decode()}"


def _body(pod: Object, phase: ResizePhase, generation: int) -> Object:
    return {
        "kind": "Resizing",
        "apiVersion": "v1",
        "metadata": {
            "name": name_of(pod),
            "namespace": namespace_of(pod),
            "uid": uid_of(pod),
        },
        "request": {"requestStatus": REQUEST_STATUS[phase].value},
        "phase": phase.value,
        "generation": generation,
    }


def _present(status: Object) -> Object:
    return {key: value for key, value in status.items() if value is not None}
