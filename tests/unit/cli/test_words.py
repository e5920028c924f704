"""The small languages of the command line: kinds, durations, sizes, ages, manifests, completion."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from livesize.api.duration import parse_duration
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, name_of, namespace_of
from livesize.cli.apply import parse_manifests, placed
from livesize.cli.connection import CommandFailure
from livesize.cli.output import Table, column_widths, format_row, print_table
from livesize.cli.tables import format_age, pod_status, resize_word, table_of
from livesize.cli.targets import (
    CommandTarget,
    find_resource,
    parse_pod,
    parse_resizable,
    parse_resizable_kinds,
    parse_targets,
)
from livesize.main.entry import cli


@pytest.mark.parametrize("word", ["pod", "pods", "po", "Pod", "PODS"])
def test_a_kind_has_many_names(word: str) -> None:
    assert find_resource(word) is PODS


def test_a_kind_may_carry_its_group() -> None:
    assert find_resource("leases.coordination.k8s.io") is LEASES
    assert find_resource("nothing") is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pods"], [CommandTarget(PODS)]),
        (["pod/a", "no/b"], [CommandTarget(PODS, ("a",)), CommandTarget(NODES, ("b",))]),
        (["pod", "a", "b"], [CommandTarget(PODS, ("a", "b"))]),
        (["po,nodes,pods"], [CommandTarget(PODS), CommandTarget(NODES)]),
        (["po,no", "a"], [CommandTarget(PODS, ("a",)), CommandTarget(NODES, ("a",))]),
    ],
)
def test_targets(words: list[str], expected: list[CommandTarget]) -> None:
    assert parse_targets(words) == expected


@pytest.mark.parametrize(
    "words", [[], ["what"], ["pod/"], ["/a"], ["pod/a/b"], ["pod", "pod/a"], ["pods,"]]
)
def test_targets_that_mean_nothing(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse_targets(words)


def test_only_a_pod_is_entered() -> None:
    names = [parse_pod(word, "entered") for word in ("db", "pod/db", "po/db")]
    assert names == ["db", "db", "db"]
    with pytest.raises(click.UsageError, match="only pods can be entered"):
        parse_pod("node/n1", "entered")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["db"], [(PODS, "db")]),
        (["statefulset"], [(PODS, "statefulset")]),
        (
            ["sts/db", "deploy/web", "pod/a"],
            [(STATEFUL_SETS, "db"), (DEPLOYMENTS, "web"), (PODS, "a")],
        ),
        (["sts", "db", "web"], [(STATEFUL_SETS, "db"), (STATEFUL_SETS, "web")]),
        (["sts/db", "statefulset/db"], [(STATEFUL_SETS, "db")]),
    ],
    ids=["a pod", "a pod with the name of a kind", "several", "of one kind", "twice the same"],
)
def test_what_is_resized(words: list[str], expected: list[tuple[Resource, str]]) -> None:
    found = parse_resizable(words)
    assert [(target.resource, *target.names) for target in found] == expected


@pytest.mark.parametrize("words", [["rs/web"], ["node/n1"], ["sts/"], ["nodes", "n1"], []])
def test_what_has_no_size_of_its_own(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse_resizable(words)


def test_a_selector_goes_with_kinds() -> None:
    assert parse_resizable_kinds([]) == [STATEFUL_SETS, DEPLOYMENTS]
    assert parse_resizable_kinds(["pods,deploy"]) == [PODS, DEPLOYMENTS]
    for words in (["sts/db"], ["pods", "db"], ["rs"]):
        with pytest.raises(click.UsageError):
            parse_resizable_kinds(words)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("30", 30.0), ("30s", 30.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0)),
        *(("", None), ("s", None), ("-1s", None), ("1 s", None), ("10d", None)),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (192, "3m12s"), (660, "11m")),
        *((10800, "3h"), (18120, "5h2m"), (86400, "24h"), (172800, "2d"), (187200, "2d4h")),
        (864000, "10d"),
    ],
)
def test_ages_are_kubectls(seconds: int, shown: str) -> None:
    assert format_age("1970-01-01T00:01:40Z", 100.0 + seconds) == shown


def pod(**status: Any) -> Object:
    resources = {
        "requests": {"cpu": "500m", "memory": "64Mi"},
        "limits": {"cpu": "1", "memory": "64Mi"},
    }
    container = {"name": "app", "resources": resources}
    return {
        "metadata": {"name": "db", "namespace": "ns", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1", "containers": [container, {**container, "name": "side"}]},
        "status": {"phase": "Running", **status},
    }


def reported(name: str, cpu: str) -> Object:
    return {
        "name": name,
        "ready": True,
        "restartCount": 1,
        "state": {"running": {}},
        "allocatedResources": {"cpu": cpu, "memory": "64Mi"},
        "resources": {
            "requests": {"cpu": cpu, "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": "64Mi"},
        },
    }


def test_a_pod_is_shown_with_desired_allocated_and_actual_sums() -> None:
    statuses = [reported("app", "250m"), reported("side", "500m")]
    shown = table_of(
        *(PODS, [pod(containerStatuses=statuses)], 60.0), wide=False, all_namespaces=True
    )
    assert dict(zip(shown.header, shown.rows[0], strict=True)) == {
        "NAMESPACE": "ns",
        "NAME": "db",
        "KIND": "container",
        "READY": "2/2",
        "STATUS": "Running",
        "RESTARTS": "2",
        "AGE": "60s",
        "DESIRED": "1:2 128Mi",
        "ALLOCATED": "750m 128Mi",
        "ACTUAL": "750m:2 128Mi",
        "RESIZE": "-",
    }


def test_what_a_pod_has_not_reported_is_not_invented() -> None:
    shown = table_of(
        *(PODS, [pod(containerStatuses=[reported("app", "1")])], 0.0),
        wide=True,
        all_namespaces=False,
    )
    row = dict(zip(shown.header, shown.rows[0], strict=True))
    assert (row["READY"], row["ALLOCATED"], row["ACTUAL"], row["NODE"]) == ("1/2", "-", "-", "n1")


@pytest.mark.parametrize(
    ("states", "actual"),
    [
        ([{"waiting": {"reason": "CrashLoopBackOff"}}] * 2, "-"),
        ([{"terminated": {"exitCode": 1}}] * 2, "-"),
        ([{}, {}], "-"),
        ([{"running": {}}, {"waiting": {"reason": "ErrImagePull"}}], "750m:1 64Mi"),
    ],
    ids=["a crash loop", "dead", "never started", "one of two runs"],
)
def test_what_does_not_run_has_no_actual_size(states: list[Object], actual: str) -> None:
    statuses = [
        {**reported(name, "750m"), "state": state}
        for name, state in zip(("app", "side"), states, strict=True)
    ]
    shown = table_of(PODS, [pod(containerStatuses=statuses)], 0.0, wide=False, all_namespaces=False)
    row = dict(zip(shown.header, shown.rows[0], strict=True))
    assert row["ACTUAL"] == actual


KUBERNETES = "attempting to set pod memory limit (1) below current usage (2)"


def in_progress(message: str) -> Object:
    kind = {"type": "PodResizeInProgress", "status": "True"}
    return {**kind, "reason": "Error", "message": message}


@pytest.mark.parametrize(
    ("conditions", "word"),
    [
        ([], "-"),
        ([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}], "Deferred"),
        ([{"type": "PodResizeInProgress", "status": "True"}], "InProgress"),
        ([{"type": "PodResizeInProgress", "status": "True", "reason": "Error"}], "Error"),
        ([in_progress(f"app holds 100Mi, 36Mi to free: {KUBERNETES}")], "Waiting"),
        ([in_progress(KUBERNETES)], "Waiting"),
        (
            [in_progress("memory: the guest has 9 bytes, 5 bytes to go: the guest uses 8")],
            "Waiting",
        ),
        ([in_progress("cpu: the guest uses 3 CPUs, not 4")], "Error"),
        ([{"type": "PodResized", "status": "Requested"}], "Requested"),
        ([{"type": "PodResized", "status": "Accepted"}], "Accepted"),
        ([{"type": "PodResized", "status": "Done"}], "-"),
    ],
)
def test_the_word_for_a_resize(conditions: list[Object], word: str) -> None:
    assert resize_word(pod(conditions=conditions)) == word


def test_the_word_for_a_pod() -> None:
    waiting = {"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    assert pod_status(pod(containerStatuses=[waiting])) == "CrashLoopBackOff"
    assert pod_status({"metadata": {"deletionTimestamp": "x"}}) == "Terminating"
    assert pod_status({}) == "Pending"


def vm_pod(state: str, **guest: Any) -> Object:
    vm = {"state": state, "guest": {"vcpusPlugged": 4, "memoryPlugged": "2Gi", **guest}}
    spec = {"virtualMachine": {"resources": {"requests": {"cpu": "4", "memory": "2Gi"}}}}
    return {"spec": spec, "status": {"phase": "Running", "virtualMachineStatus": vm}}


@pytest.mark.parametrize(
    ("guest", "cpu", "memory"),
    [
        ({"vcpusOnline": 1, "memorySeen": "2033242112"}, "4 → 4 → 1", "- → 2048Mi → 1939Mi"),
        ({}, "4 → 4 → -", "- → 2048Mi → -"),
    ],
    ids=["as the guest says", "the guest is silent"],
)
def test_a_virtual_machine_shows_what_its_guest_has(guest: Object, cpu: str, memory: str) -> None:
    shown = table_of(PODS, [vm_pod("Running", **guest)], 0.0, wide=True, all_namespaces=False)
    row = dict(zip(shown.header, shown.rows[0], strict=True))
    assert (row["KIND"], row["READY"], row["STATUS"]) == ("vm", "1/1", "Running")
    assert (row["GUEST CPU"], row["GUEST MEMORY"]) == (cpu, memory)


def test_a_guest_that_boots_is_starting() -> None:
    assert pod_status(vm_pod("Starting")) == "Starting"


def test_every_kind_has_a_table_even_of_an_empty_object() -> None:
    for resource in REGISTRY.stored():
        table = table_of(resource, [{}], 0.0, wide=True, all_namespaces=False)
        assert len(table.header) == len(table.rows[0])


def test_other_kinds_look_as_kubectl_prints_them() -> None:
    bound = {"metadata": {"name": "data"}, "status": {"phase": "Bound"}}
    table = table_of(PERSISTENT_VOLUME_CLAIMS, [bound], 0.0, wide=False, all_namespaces=False)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert (row["NAME"], row["STATUS"], row["VOLUME"]) == ("data", "Bound", "-")
    assert "ACCESS MODES" in row
    assert "VOLUMEMODE" not in row


def test_a_table_is_plain_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table(("NAME", "AGE"), (("database", "1s"), ("x", "100s"))))
    assert capsys.readouterr().out == "NAME       AGE\ndatabase   1s\nx          100s\n"


def test_colours_do_not_move_the_columns() -> None:
    rows = [("NAME", "STATUS", "AGE"), ("a", "Running", "1s"), ("b", "Failed", "1s")]
    lines = [format_row(row, column_widths(rows)) for row in rows]
    assert "\x1b[32mRunning\x1b[0m   1s" in lines[1]
    assert {click.unstyle(line).index(row[2]) for line, row in zip(lines, rows, strict=True)} == {
        17
    }


def test_manifests_may_be_many_documents_and_lists() -> None:
    text = """
kind: Pod
apiVersion: v1
metadata: {name: a}
---
---
{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Pod", "metadata": {"name": "b"}}]}
"""
    assert [name_of(obj) for obj in parse_manifests(text, "x")] == ["a", "b"]


@pytest.mark.parametrize("text", ["a: [", "- 1", "just words"])
def test_what_is_no_manifest_is_one_sentence(text: str) -> None:
    with pytest.raises(CommandFailure, match="x "):
        list(parse_manifests(text, "x"))


def test_a_manifest_is_placed_in_the_namespace_it_needs() -> None:
    manifest = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}
    assert namespace_of(placed(manifest, "team", forced=False)[1]) == "team"
    assert namespace_of(manifest) == ""
    own = {**manifest, "metadata": {"name": "a", "namespace": "own"}}
    assert namespace_of(placed(own, "team", forced=False)[1]) == "own"
    with pytest.raises(CommandFailure, match="'own', not 'team'"):
        placed(own, "team", forced=True)
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}
    assert placed(node, "team", forced=True) == (NODES, node)
    with pytest.raises(CommandFailure, match="Gadget"):
        placed({**manifest, "kind": "Gadget"}, "team", forced=False)
    with pytest.raises(CommandFailure, match="no metadata"):
        placed({**manifest, "metadata": {}}, "team", forced=False)


GET_AND_RESIZE = """
from livesize.cli import get, tables, targets
from livesize.cli.resize import command
from livesize.client import http, kubeconfig
tables.columns_of(targets.find_resource("pods"))
kubeconfig._parse("{}")
"""


@pytest.mark.parametrize(
    ("does", "heavy"),
    [
        (
            "import livesize.main.entry",
            ["aiohttp", "rich", "yaml", "msgspec", "orjson", "asyncio", "livesize.main.settings"],
        ),
        (
            GET_AND_RESIZE,
            ["livesize.api.kinds.registry", "livesize.api.schema", "yaml", "tempfile", "rich"],
        ),
    ],
    ids=["the program", "get and resize of pods"],
)
def test_what_is_not_imported_for_it(does: str, heavy: list[str]) -> None:
    script = f"import sys\n{does}\nprint([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_the_list_of_commands_says_of_those_of_this_machine_what_they_say_themselves() -> None:
    context = click.Context(cli)
    formatter = click.HelpFormatter(width=200)
    cli.format_commands(context, formatter)
    listed = dict(re.findall(r"^ +(\S+) +(.+)$", formatter.getvalue(), re.MULTILINE))
    for name in ("agent", "clean", "join", "sim", "up"):
        command = cli.get_command(context, name)
        assert command is not None
        assert listed[name] == command.get_short_help_str(70)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    answer = CliRunner().invoke(cli, ["completion", shell], prog_name="livesize")
    assert answer.exit_code == 0
    assert "_LIVESIZE_COMPLETE" in answer.output


@pytest.mark.parametrize(
    ("incomplete", "offered"), [("pods", ["pods"]), ("n", ["namespaces", "nodes"]), ("pod/", [])]
)
def test_kinds_are_completed_and_without_a_server_nothing_breaks(
    incomplete: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from click.shell_completion import ShellComplete

    monkeypatch.setenv("LIVESIZE_KUBECONFIG", str(tmp_path / "missing"))
    complete = ShellComplete(cli, {}, "livesize", "_LIVESIZE_COMPLETE")
    items = complete.get_completions(["get"], incomplete)
    assert [item.value for item in items] == offered


@pytest.mark.parametrize(
    "words",
    [
        *(["get"], ["get", "gadgets"], ["resize"], ["resize", "pod/db"], ["delete", "pods"]),
        ["resize", "node/n1", "--cpu", "1"],
        ["resize", "--cpu", "1"],
        ["resize", "sts/db", "--cpu", "1", "--undo"],
        ["resize", "pod/db", "--undo"],
        ["resize", "sts/db", "pod/db", "--cpu", "1", "--action", "InPlaceResize"],
        ["resize", "sts/db", "--cpu", "1", "--action", "Never"],
        ["resize", "sts/db", "-l", "app=db", "--cpu", "1"],
        ["resize", "pod/db", "--cpu", "much"],
        ["resize", "pod/db", "--cpu", "1", "--limit-cpu", "2"],
        ["resize", "pod/db", "--cpu", "1", "--timeout", "soon"],
        ["apply"],
        ["what"],
    ],
)
def test_bad_usage_is_exit_code_2(words: list[str], kubeconfig: Path) -> None:
    answer = CliRunner().invoke(cli, words, env={"LIVESIZE_KUBECONFIG": str(kubeconfig)})
    assert answer.exit_code == 2, answer.output
    assert "Traceback" not in answer.output


@pytest.mark.parametrize(
    "words", [["get", "pods"], ["resize", "pod/db", "--cpu", "1"], ["delete", "pod/db"]]
)
def test_no_server_says_where_it_was_looked_for_and_how_to_start_one(
    words: list[str], kubeconfig: Path
) -> None:
    answer = CliRunner().invoke(cli, words, env={"LIVESIZE_KUBECONFIG": str(kubeconfig)})
    assert answer.exit_code == 1
    assert answer.stderr == (
        "livesize: cannot reach the server at https://127.0.0.1:1 (connection refused);"
        " start one with `livesize up`, or name another with --kubeconfig\n"
    )


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a server that does not run: nothing listens on port 1."""
    from livesize.client.kubeconfig import write_kubeconfig

    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "https://127.0.0.1:1", b"", "token", "admin")
    return path


def test_every_command_has_help_with_examples() -> None:
    context = click.Context(cli)
    for name in ("apply", "completion", "delete", "describe", "doctor", "get", "resize", "version"):
        command = cli.get_command(context, name)
        assert command is not None
        assert "Examples:" in (command.help or "")


def test_version() -> None:
    answer = CliRunner().invoke(cli, ["version"])
    assert answer.exit_code == 0
    assert answer.output.startswith("livesize ")
