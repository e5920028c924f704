"""Whether a container runs, has yet to run, or never will again, by its status. Pure.

What does not run has no actual size: on the wire ``containerStatuses[].resources`` is then what is
allocated, as Kubernetes has it; whoever shows sizes to people asks here first.
"""

from __future__ import annotations

from collections.abc import Collection

from livesize.api.objects import Object, lookup
from livesize.api.reasons import Reason
from livesize.api.resources import resizable_of
from livesize.api.restart_policy import starts_again
from livesize.api.vm_status import resizable_statuses_of


def is_running(status: Object) -> bool:
    return lookup(status, "state", "running") is not None


def has_ended_for_good(pod: Object, status: Object) -> bool:
    """It ended, and neither its own rules and policy nor its pod's start it again."""
    ended = lookup(status, "state", "terminated")
    if ended is None:
        return False
    name = status.get("name")
    container = next((one for one in resizable_of(pod) if one.get("name") == name), {})
    return not starts_again(pod, container, int(lookup(ended, "exitCode", default=0)))


def yet_to_run(pod: Object, names: Collection[str]) -> str:
    """Which of the containers so named do not run though they are going to, and why, for people;
    empty where there are none."""
    statuses = {status.get("name"): status for status in resizable_statuses_of(pod)}
    waiting = []
    for name in names:
        status = statuses.get(name, {})
        if not is_running(status) and not has_ended_for_good(pod, status):
            waiting.append(f"{name} ({_waiting_cause(status) or 'it is to start'})")
    return ", ".join(waiting)


def start_failures(pod: Object) -> list[str]:
    """Why containers could not be started, and what to do, a sentence for each of them."""
    return [
        f"{status.get('name')} does not start, {_waiting_cause(status)}"
        for status in resizable_statuses_of(pod)
        if _start_failure(status)
    ]


def _waiting_cause(status: Object) -> str:
    """For instance ``ErrImageNeverPull: image guest is not on this machine``."""
    reason = lookup(status, "state", "waiting", "reason", default="")
    return ": ".join(filter(None, (reason, _start_failure(status))))


def _start_failure(status: Object) -> str:
    """One that was started and ended says why by its exit code and its log, not here."""
    waiting = lookup(status, "state", "waiting", default={})
    ended = waiting.get("reason") == Reason.CRASH_LOOP_BACK_OFF
    return "" if ended else str(waiting.get("message") or "")
