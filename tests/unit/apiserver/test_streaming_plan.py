"""What a node is asked for logs, exec, attach and ports; and what is refused, in known words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.errors import StatusError
from livesize.apiserver.streaming.plan import NodeRequest, StreamQuery, plan_stream

NOW = 1_000_000.0
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 1}}


def pod(*names: str, node: str = "n1", status: Any = None, **more: Any) -> dict[str, Any]:
    statuses = [
        {"name": name, "state": RUNNING, "restartCount": 0, **(status or {})} for name in names
    ]
    return {
        "metadata": {"name": "db", "uid": "u-1"},
        "spec": {"containers": [{"name": name} for name in names], "nodeName": node, **more},
        "status": {"containerStatuses": statuses, "phase": "Running"},
    }


def plan(the_pod: dict[str, Any], what: str, *pairs: tuple[str, str]) -> NodeRequest | None:
    return plan_stream(the_pod, what, StreamQuery(pairs), NOW)


@pytest.mark.parametrize(
    ("pairs", "path"),
    [
        ((), "/logs/u-1/app"),
        ((("follow", "true"), ("previous", "false")), "/logs/u-1/app?follow=1"),
        ((("tailLines", "0"), ("limitBytes", "5")), "/logs/u-1/app?tailLines=0&limitBytes=5"),
        ((("sinceSeconds", "60"),), "/logs/u-1/app?since=999940.000000000"),
        ((("sinceTime", "1970-01-01T00:00:10Z"),), "/logs/u-1/app?since=10.000000000"),
        ((("timestamps", "1"), ("container", "app")), "/logs/u-1/app?timestamps=1"),
    ],
)
def test_a_log_is_asked_for(pairs: tuple[tuple[str, str], ...], path: str) -> None:
    assert plan(pod("app"), "log", *pairs) == NodeRequest("n1", path, switches=False)


def test_the_log_of_a_pod_without_a_node_is_empty() -> None:
    assert plan(pod("app", node=""), "log") is None


def test_the_start_before_is_shown_while_the_next_is_waited_for() -> None:
    waiting = {"state": {"waiting": {}}, "lastState": ENDED, "restartCount": 1}
    assert plan(pod("app", status=waiting), "log") is not None
    assert plan(pod("app", status=waiting), "log", ("previous", "1")) is not None


@pytest.mark.parametrize("what", ["exec", "attach"])
def test_what_does_not_reach_into_a_guest_is_answered_with_a_sentence(what: str) -> None:
    vm = pod(virtualMachine={"kernel": {}})
    vm["status"]["virtualMachineStatus"] = {"state": "Running", "restartCount": 0}
    with pytest.raises(
        StatusError, match=r"is a virtual machine: .* does not reach into its guest"
    ):
        plan(vm, what, ("stdout", "1"), ("command", "true"))


def test_the_log_of_a_virtual_machine_is_its_console() -> None:
    vm = pod(virtualMachine={"kernel": {}})
    status = vm["status"]["virtualMachineStatus"] = {"state": "Starting", "restartCount": 0}
    assert plan(vm, "log") == NodeRequest("n1", "/logs/u-1/vm", switches=False)
    with pytest.raises(StatusError, match="not found"):
        plan(vm, "log", ("previous", "1"))
    status["restartCount"] = 1
    before = NodeRequest("n1", "/logs/u-1/vm?previous=1", switches=False)
    assert plan(vm, "log", ("previous", "1")) == before
    vm["status"]["virtualMachineStatus"] = {"state": "Waiting", "reason": "ImageMissing"}
    with pytest.raises(StatusError, match="waiting to start: ImageMissing"):
        plan(vm, "log")


def test_a_command_is_passed_on_as_it_is() -> None:
    asked = plan(
        pod("app"), "exec", ("command", "sh"), ("command", "-c"), ("command", "echo a&b=c ü\n"),
        ("stdin", "true"), ("stdout", "true"), ("tty", "true"),
    )  # fmt: skip
    words = "stdin=1&tty=1&command=sh&command=-c&command=echo+a%26b%3Dc+%C3%BC%0A"
    assert asked == NodeRequest("n1", f"/exec/u-1/app?{words}")


def test_attach_and_ports() -> None:
    assert plan(pod("app"), "attach", ("stdout", "1")) == NodeRequest("n1", "/attach/u-1/app?")
    assert plan(pod("a", "b"), "portforward") == NodeRequest("n1", "/portforward/u-1")


CHOOSE = "a container name must be specified for pod db, choose one of:"
OUT = ("stdout", "true")
RUN = (("command", "true"), OUT)
WAITING = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}


@pytest.mark.parametrize(
    ("the_pod", "what", "pairs", "sentence"),
    [
        (pod("a", "b"), "log", (),
         f"{CHOOSE} [a b]"),
        (pod("a", "b", initContainers=[{"name": "i"}]), "exec", RUN,
         f"{CHOOSE} [a b] or one of the init containers: [i]"),
        (pod("a"), "log", (("container", "x"),), "container x is not valid for pod db"),
        (pod("a"), "exec", (("container", "x"), *RUN), "container x is not valid for pod db"),
        (pod("a", status=WAITING), "log", (),
         'container "a" in pod "db" is waiting to start: ImagePullBackOff'),
        (pod("a"), "log", (("previous", "1"),),
         'previous terminated container "a" in pod "db" not found'),
        (pod("a", status={"state": ENDED}), "exec", RUN,
         'unable to upgrade connection: container not found ("a")'),
        (pod("a", node=""), "exec", RUN, "pod db does not have a host assigned"),
        (pod("a"), "exec", (OUT,), "you must specify at least one command for the container"),
        (pod("a"), "exec", (("command", "a"),),
         "you must specify at least 1 of stdin, stdout, stderr"),
        (pod("a"), "log", (("sinceSeconds", "5"), ("sinceTime", "2026-01-01T00:00:00Z")),
         "at most one of `sinceTime` or `sinceSeconds` may be specified"),
        (pod("a"), "log", (("tailLines", "-1"),),
         'PodLogOptions: tailLines: "-1" is not a non-negative whole number'),
        (pod("a"), "log", (("limitBytes", "0"),),
         'PodLogOptions: limitBytes: "0" is not a positive whole number'),
        (pod("a"), "log", (("sinceTime", "yesterday"),),
         'PodLogOptions: sinceTime: "yesterday" is not a time as RFC 3339 has it'),
    ],
)  # fmt: skip
def test_what_is_refused(
    the_pod: dict[str, Any], what: str, pairs: tuple[tuple[str, str], ...], sentence: str
) -> None:
    with pytest.raises(StatusError) as refused:
        plan(the_pod, what, *pairs)
    assert (refused.value.code, refused.value.message) == (400, sentence)


NAMES = st.sampled_from(
    ["container", "command", "follow", "previous", "tailLines", "limitBytes", "sinceSeconds",
     "sinceTime", "stdin", "stdout", "tty"]
)  # fmt: skip


@given(
    st.sampled_from(["log", "exec", "attach", "portforward"]),
    st.lists(st.tuples(NAMES, st.text(max_size=20) | st.integers().map(str)), max_size=6),
)
def test_whatever_is_asked_it_is_a_path_of_that_pod_or_a_refusal(
    what: str, pairs: list[tuple[str, str]]
) -> None:
    try:
        asked = plan(pod("app"), what, *pairs)
    except StatusError as refused:
        code = refused.code
        asked = None
    else:
        code = 200
    if asked is None:
        assert 400 <= code < 500
        return
    kind = {"log": "logs"}.get(what, what)
    assert asked.path.startswith(f"/{kind}/u-1")
    assert asked.path.isascii()
    assert not set(asked.path) & set(" \r\n")


def test_who_is_no_admin_forwards_the_ports_that_the_pod_declares() -> None:
    """Pods have the machine's network: any other port is somebody else's."""
    declared = pod("web")
    declared["spec"]["containers"][0]["ports"] = [
        {"containerPort": 8080},
        {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 53, "protocol": "UDP"},
    ]
    asked = plan_stream(declared, "portforward", StreamQuery([]), NOW, any_port=False)
    assert asked == NodeRequest("n1", "/portforward/u-1?port=80&port=8080")
    with pytest.raises(StatusError, match="declares no ports") as refused:
        plan_stream(pod("web"), "portforward", StreamQuery([]), NOW, any_port=False)
    assert refused.value.code == 403


def test_a_command_that_cannot_be_run_is_refused_with_its_size() -> None:
    longest = "x" * (128 * 1024 - 1)
    assert plan(pod("app"), "exec", ("stdout", "1"), ("command", longest)) is not None
    with pytest.raises(StatusError, match=r"the command has 131073 bytes, and at most 131071"):
        plan(pod("app"), "exec", ("stdout", "1"), ("command", longest[1:] + "xé"))
