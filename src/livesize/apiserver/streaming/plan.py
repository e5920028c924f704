"""Decides what a node is asked for logs, exec, attach and ports of a pod. Pure.

The answer is a path of the node's endpoint (livesize.agent.endpoint.server), or a refusal in the
words that kubectl's users know.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from urllib.parse import quote, urlencode

import msgspec

from livesize.api.errors import StatusError, bad_request, forbidden
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.api.resources import VM_NAME, is_vm
from livesize.api.vm_status import statuses_of

LOG, EXEC, ATTACH, PORT_FORWARD = "log", "exec", "attach", "portforward"
_MOST_COMMAND_BYTES = 128 * 1024 - 1  # what Linux takes of one argument (execve(2))


class StreamQuery:
    """The parameters of a request; a name may come several times."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def one(self, name: str) -> str:
        return next((value for key, value in self._pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name]

    def flag(self, name: str) -> bool:
        """As Kubernetes reads it: anything but nothing, 0 and false is true."""
        return self.one(name).lower() not in ("", "0", "false")

    def number(self, name: str, least: int) -> int | None:
        text = self.one(name)
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18) or int(text) < least:
            kind = "positive" if least else "non-negative"
            raise bad_request(f'PodLogOptions: {name}: "{text}" is not a {kind} whole number')
        return int(text)


class NodeRequest(msgspec.Struct, frozen=True):
    """``path`` is asked of ``node``; ``switches``: the connection then speaks another language."""

    node: str
    path: str
    switches: bool = True


def plan_stream(
    pod: Object, subresource: str, query: StreamQuery, now: float, *, any_port: bool = True
) -> NodeRequest | None:
    """None: there is nothing to be had yet, and that is the answer. Raises what is refused.
    ``any_port``: also those that the pod does not declare."""
    if subresource == LOG:
        return _plan_log(pod, query, now)
    node = str(lookup(pod, "spec", "nodeName", default=""))
    if not node:
        raise bad_request(f"pod {name_of(pod)} does not have a host assigned")
    if lookup(pod, "status", "phase", default="") in ("Succeeded", "Failed"):
        raise bad_request(
            f"cannot {subresource} into a container in a completed pod; current phase is"
            f" {pod['status']['phase']}"
        )
    if subresource == PORT_FORWARD:
        return NodeRequest(node, _forward_path(pod, any_port=any_port))
    if is_vm(pod):
        raise bad_request(
            f"pod {name_of(pod)} is a virtual machine: {subresource} does not reach into its guest"
            " yet; `kubectl logs` shows its console"
        )
    container = choose_container(pod, query.one("container"))
    if _state(pod, container, "running") is None:
        raise bad_request(f'unable to upgrade connection: container not found ("{container}")')
    return NodeRequest(node, _session_path(pod, container, subresource, query))


def choose_container(pod: Object, given: str) -> str:
    """The one that is named, or the only one."""
    names = [VM_NAME] if is_vm(pod) else _names(pod, "containers")
    inits = _names(pod, "initContainers")
    if given:
        if given not in (*names, *inits):
            raise bad_request(f"container {given} is not valid for pod {name_of(pod)}")
        return given
    if len(names) == 1:
        return names[0]
    more = f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
    raise bad_request(
        f"a container name must be specified for pod {name_of(pod)}, choose one of:"
        f" [{' '.join(names)}]{more}"
    )


def _plan_log(pod: Object, query: StreamQuery, now: float) -> NodeRequest | None:
    container = choose_container(pod, query.one("container"))
    parameters = _log_parameters(query, now)
    node = str(lookup(pod, "spec", "nodeName", default=""))
    if not node:
        return None
    status = _status(pod, container)
    if query.flag("previous"):
        if not status.get("restartCount") and not lookup(status, "lastState", "terminated"):
            raise bad_request(
                f'previous terminated container "{container}" in pod "{name_of(pod)}" not found'
            )
    elif not _has_started(status):
        reason = lookup(status, "state", "waiting", "reason", default="") or "ContainerCreating"
        raise bad_request(
            f'container "{container}" in pod "{name_of(pod)}" is waiting to start: {reason}'
        )
    text = urlencode(parameters)
    path = f"/logs/{_quoted(uid_of(pod))}/{_quoted(container)}"
    return NodeRequest(node, f"{path}?{text}" if text else path, switches=False)


def _log_parameters(query: StreamQuery, now: float) -> dict[str, str]:
    parameters = {name: "1" for name in ("follow", "previous", "timestamps") if query.flag(name)}
    for name, least in (("tailLines", 0), ("limitBytes", 1)):
        number = query.number(name, least)
        if number is not None:
            parameters[name] = str(number)
    seconds = query.number("sinceSeconds", 1)
    if seconds is not None and query.one("sinceTime"):
        raise bad_request("at most one of `sinceTime` or `sinceSeconds` may be specified")
    if seconds is not None:
        parameters["since"] = f"{now - seconds:.9f}"
    elif query.one("sinceTime"):
        parameters["since"] = f"{_moment(query.one('sinceTime')):.9f}"
    return parameters


def _moment(text: str) -> float:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise bad_request(f'PodLogOptions: sinceTime: "{text}" is not a time as RFC 3339 has it')
    return moment.timestamp()


def _session_path(pod: Object, container: str, subresource: str, query: StreamQuery) -> str:
    pairs = [(name, "1") for name in ("stdin", "tty") if query.flag(name)]
    if not any(query.flag(name) for name in ("stdin", "stdout", "stderr")):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if subresource == EXEC:
        command = query.all("command")
        if not command or not command[0]:
            raise bad_request("you must specify at least one command for the container")
        size_bytes = sum(len(word.encode(errors="replace")) for word in command)
        if size_bytes > _MOST_COMMAND_BYTES:
            raise StatusError(
                413,
                "RequestEntityTooLarge",
                f"the command has {size_bytes} bytes, and at most {_MOST_COMMAND_BYTES} can be run;"
                " send what is longer through stdin, for instance sh -s < script",
            )
        pairs += [("command", argument) for argument in command]
    text = urlencode(pairs)
    return f"/{subresource}/{_quoted(uid_of(pod))}/{_quoted(container)}?{text}"


def _forward_path(pod: Object, *, any_port: bool) -> str:
    """Pods have the machine's network: a port that is not the pod's own is another's, perhaps one
    that its owner believes only the machine itself can reach."""
    path = f"/portforward/{_quoted(uid_of(pod))}"
    if any_port:
        return path
    ports = declared_ports(pod)
    if not ports:
        raise forbidden(
            PODS,
            name_of(pod),
            "it declares no ports, and only an admin forwards others: write the port into"
            " spec.containers[].ports of the pod",
        )
    return f"{path}?{urlencode([('port', str(port)) for port in ports])}"


def declared_ports(pod: Object) -> list[int]:
    """TCP ports of its containers, sidecars among them."""
    found = {
        port.get("containerPort")
        for kind in ("containers", "initContainers")
        for container in lookup(pod, "spec", kind, default=[])
        for port in container.get("ports") or []
        if port.get("protocol", "TCP") == "TCP"
    }
    return sorted(port for port in found if isinstance(port, int))


def _names(pod: Object, field: str) -> list[str]:
    return [str(one.get("name", "")) for one in lookup(pod, "spec", field, default=[])]


def _status(pod: Object, container: str) -> Object:
    """Of a virtual machine as if it were a container: its log is its console."""
    starting: list[Object] = lookup(pod, "status", "initContainerStatuses", default=[])
    found = (one for one in (*statuses_of(pod), *starting) if one.get("name") == container)
    return next(found, {})


def _state(pod: Object, container: str, state: str) -> Object | None:
    found: Object | None = lookup(_status(pod, container), "state", state)
    return found


def _has_started(status: Object) -> bool:
    """This start, or one before, of which the log is shown while it waits for the next."""
    if any(lookup(status, "state", one) is not None for one in ("running", "terminated")):
        return True
    return lookup(status, "lastState", "terminated") is not None


def _quoted(name: str) -> str:
    return quote(name, safe="")
