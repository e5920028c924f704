"""The commands against the real API server over TLS, with a small node that answers resizes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from livesize.api.objects import generation_of, name_of
from livesize.cli.app import cli
from unit.cli.small_system import (
    EVIL_CPU_MILLI,
    NO_IMAGE,
    NODE,
    UNTOUCHED_CPU_MILLI,
    Shell,
    manifest,
    vm_manifest,
)


def test_apply_creates_then_leaves_alone_then_changes(shell: Shell) -> None:
    assert shell.ok("apply -f -", manifest("db")) == "pod/db created\n"
    assert shell.ok("apply -f -", manifest("db")) == "pod/db unchanged\n"
    assert shell.ok("apply -f -", manifest("db", tier="one")) == "pod/db configured\n"
    assert shell.pod("db")["metadata"]["labels"] == {"tier": "one"}


def test_a_dry_run_changes_nothing(shell: Shell) -> None:
    assert shell.ok("apply --dry-run -f -", manifest("db")) == "pod/db created (dry run)\n"
    assert 'pods "db" not found' in shell.fails("get pod/db")
    shell.start("db")
    assert "would be resized" in shell.ok("resize pod/db --cpu 1 --dry-run")
    assert generation_of(shell.pod("db")) == 1


def test_a_refused_manifest_is_one_sentence(shell: Shell) -> None:
    assert "must be less than or equal" in shell.fails("apply -f -", manifest("db", "2", "1"))
    assert "cannot be read" in shell.fails("apply -f /nowhere/pod.yaml")
    assert "there are no objects" in shell.fails("apply -f -", "")


@pytest.mark.parametrize("waits", ["", " --wait --timeout 0.5s"], ids=["asked", "waited for"])
def test_what_a_node_says_does_not_write_on_the_screen(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    terminal = SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("livesize.cli.resize.pod.sys", terminal)
    shell.start("evil")
    said = shell.run(f"resize pod/evil --cpu {EVIL_CPU_MILLI}m{waits}")
    shown = [*said.stdout.splitlines(), *said.stderr.splitlines()]
    told = [line for line in shown if "\\x1b[2Jowned\\r\\u202e" in line]
    assert len(told) == (2 if waits else 1), said.output
    assert all(one.isprintable() or one == "\n" for one in said.output), said.output


@pytest.mark.parametrize("of_vm", [False, True])
def test_apply_takes_a_policy_away_that_the_manifest_had(shell: Shell, of_vm: bool) -> None:
    plain = yaml.safe_load(vm_manifest("db") if of_vm else manifest("db"))
    sized = plain["spec"]["virtualMachine"] if of_vm else plain["spec"]["containers"][0]
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    sized["resizePolicy"] = policy
    with_policy = yaml.safe_dump(plain)
    del sized["resizePolicy"]
    assert shell.ok("apply -f -", with_policy) == "pod/db created\n"
    assert shell.ok("apply -f - --dry-run", yaml.safe_dump(plain)) == (
        "pod/db configured (dry run)\n"
    )
    assert shell.ok("apply -f -", yaml.safe_dump(plain)) == "pod/db configured\n"
    assert "restartPolicy: RestartContainer" not in shell.ok("get pod/db -o yaml")
    assert shell.ok("apply -f -", yaml.safe_dump(plain)) == "pod/db unchanged\n"


def test_apply_is_strict_about_fields_that_nobody_knows(shell: Shell) -> None:
    mistyped = manifest("db").replace("spec:", "spec:\n  restartPolicie: Never", 1)
    refused = 'pod/db: strict decoding error: unknown field "spec.restartPolicie"'
    assert refused in shell.fails("apply -f -", mistyped)
    assert 'pods "db" not found' in shell.fails("get pod/db")
    warned = shell.run("apply --validate warn -f -", mistyped)
    assert (warned.exit_code, warned.stdout) == (0, "pod/db created\n")
    assert warned.stderr == 'warning: pod/db: unknown field "spec.restartPolicie"\n'
    assert shell.ok("apply --validate ignore -f -", mistyped) == "pod/db unchanged\n"
    again = shell.fails("apply -f -", mistyped)
    assert refused in again
    assert "map[" not in again


def test_get_shows_tables_names_json_and_yaml(shell: Shell) -> None:
    shell.start("a", tier="front")
    shell.start("b", cpu="250m")
    header, first, second = shell.ok("get pods").splitlines()
    assert header.split()[-4:] == ["DESIRED", "ALLOCATED", "ACTUAL", "RESIZE"]
    assert "500m 64Mi   500m 64Mi" in first
    assert "250m:500m 64Mi" in second
    assert shell.ok("get pods -o name") == "pod/a\npod/b\n"
    assert shell.ok("get pods -l tier=front -o name") == "pod/a\n"
    assert [name_of(obj) for obj in json.loads(shell.ok("get po -o json"))["items"]] == ["a", "b"]
    assert yaml.safe_load(shell.ok("get pod a -o yaml")) == shell.pod("a")
    assert shell.ok("get -A pods -o wide").splitlines()[1].split()[:2] == ["default", "a"]
    assert (
        "There are no pods in namespace kube-system." in shell.run("get po -n kube-system").stderr
    )
    assert shell.ok("get nodes").splitlines()[1].split()[:2] == [NODE, "Ready"]


def test_a_watch_shows_what_is_and_then_what_changes(shell: Shell) -> None:
    shell.start("db")
    command = [str(Path(sys.executable).parent / "livesize"), "get", "pods", "-w", "-o", "json"]
    words = [*command, "--kubeconfig", str(shell.kubeconfig)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["metadata"]["labels"] == {}
        shell.ok("apply -f -", manifest("db", tier="one"))
        assert json.loads(watching.stdout.readline())["metadata"]["labels"] == {"tier": "one"}
        watching.terminate()


def test_a_resize_is_waited_for_and_shown_before_and_after(shell: Shell) -> None:
    shell.start("db")
    shown = shell.ok("resize pod/db --cpu 1 --wait --timeout 10s").splitlines()
    assert shown[0].startswith("pod/db resized in ")
    assert [" ".join(line.split()) for line in shown[2:5]] == [
        "app cpu request 500m → 1 500m → 1 500m → 1",
        "app cpu limit 500m → 1 - 500m → 1",
        "app memory request 64Mi 64Mi 64Mi",
    ]
    status = shell.pod("db")["status"]["containerStatuses"][0]
    assert status["resources"]["limits"] == {"cpu": "1", "memory": "64Mi"}
    assert "has this size already" in shell.ok("resize pod/db --cpu 1000m")
    assert shell.ok("resize db --cpu 1 --wait -o name") == "pod/db\n"


def test_a_resize_that_can_never_be_says_so(shell: Shell) -> None:
    shell.start("db")
    sentence = shell.fails("resize pod/db --cpu 8 --wait --timeout 10s")
    assert sentence == "livesize: pod/db was not resized: the node has 4000m of cpu in all\n"
    assert shell.ok("get pods").splitlines()[1].split()[-1] == "Infeasible"
    shell.ok("resize pod/db --cpu 2 --wait --timeout 10s")


def test_a_resize_that_takes_too_long_says_where_it_stands_and_the_way_back(shell: Shell) -> None:
    shell.start("db")
    sentence = shell.fails(f"resize pod/db --cpu {UNTOUCHED_CPU_MILLI}m --wait --timeout 100ms")
    assert "not resized after 0.1 s: pod/db: asked; the node has not judged it yet" in sentence
    way_back = "resize pod/db -c app --request-cpu 500m --limit-cpu 500m"
    assert f"`livesize {way_back}`" in sentence
    shell.ok(f"{way_back} --wait --timeout 10s")


def test_a_resize_without_waiting_shows_what_was_asked_and_the_nodes_answer(shell: Shell) -> None:
    shell.start("db", cpu="250m")
    first, _, *rows = shell.ok("resize pod/db --cpu 100m:1 --memory 64Mi").splitlines()
    assert first == (
        "pod/db asked for cpu request 100m, memory request 64Mi, cpu limit 1, memory limit 64Mi;"
        " done"
    )
    assert "500m → 1" in rows[1].split("-")[-1], "actual, as the node reported it"
    answer = shell.ok("resize pod/db --limit-cpu 8 --request-cpu 7").splitlines()[0]
    assert answer.endswith("; infeasible: the node has 4000m of cpu in all")
    answer = shell.ok(f"resize pod/db --limit-cpu 5 --request-cpu {UNTOUCHED_CPU_MILLI}m")
    assert answer.splitlines()[0].endswith("; asked; the node has not judged it yet")


def test_a_change_of_what_is_asked_for_now(shell: Shell) -> None:
    shell.start("db")
    assert "cpu limit 750m" in shell.ok("resize pod/db --cpu +250m")
    assert "memory limit 48Mi" in shell.ok("resize pod/db --memory -16Mi")
    sizes = shell.pod("db")["spec"]["containers"][0]["resources"]["limits"]
    assert sizes == {"cpu": "750m", "memory": "48Mi"}
    sentence = shell.fails("resize pod/db --memory -48Mi")
    assert "the memory size is 48Mi, and -48Mi would leave nothing of it" in sentence


def test_changes_of_many_at_once_add_up(shell: Shell) -> None:
    """Each of them is a change of the version that it has seen, or is worked out anew."""
    shell.start("db", cpu="100m", limit="100m")
    command = [str(Path(sys.executable).parent / "livesize"), "resize", "pod/db", "--cpu", "+100m"]
    words = [*command, "--kubeconfig", str(shell.kubeconfig), "-o", "name"]
    changes = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [one.wait(timeout=30) for one in changes] == [0, 0, 0, 0]
    assert shell.pod("db")["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "500m"


def test_who_stops_waiting_hears_that_it_is_still_asked_and_the_way_back(shell: Shell) -> None:
    shell.start("db")
    line = f"resize pod/db --cpu {UNTOUCHED_CPU_MILLI}m --wait --timeout 60s"
    program = (
        "import signal, sys; sys.stderr.isatty = lambda: True; from livesize.cli.app import cli;"
        # What runs in the background of a shell is born deaf to Ctrl-C.
        " signal.signal(signal.SIGINT, signal.default_int_handler); cli()"
    )
    words = [sys.executable, "-c", program, *line.split(), "--kubeconfig", str(shell.kubeconfig)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "asked; the node has not judged it yet" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        said = waiting.stderr.read()
        assert waiting.wait(timeout=10) == 130
    assert said.startswith("livesize: no longer waited for: pod/db: asked;")
    assert "It is still asked for, and goes on by itself" in said
    assert "`livesize resize pod/db -c app --request-cpu 500m --limit-cpu 500m`" in said
    assert "Traceback" not in said


def test_a_dry_run_of_apply_says_what_would_change(shell: Shell) -> None:
    shell.start("db")
    text = manifest("db")
    assert shell.ok("apply -f - --dry-run", text) == "pod/db unchanged (dry run)\n"
    labelled = manifest("db", tier="one")
    assert shell.ok("apply -f - --dry-run", labelled) == "pod/db configured (dry run)\n"
    assert shell.ok("apply -f - --dry-run", text) == "pod/db unchanged (dry run)\n"
    assert shell.ok("apply -f -", labelled) == "pod/db configured\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("resize pod/none --cpu 1", 'pods "none" not found'),
        ("resize pod/db -c web --cpu 1", "no container 'web'; it has app"),
        ("resize pod/db --request-cpu 2", "must be less than or equal to cpu limit"),
        ("resize pod/db --request-cpu 250m", "QOS Class may not change"),
        ("delete pod/none", 'pods "none" not found'),
    ],
)
def test_refusals_are_one_sentence(shell: Shell, line: str, words: str) -> None:
    shell.start("db")
    assert words in shell.fails(line)


def test_a_virtual_machine_is_resized_like_a_container_and_shown_beside_it(shell: Shell) -> None:
    shell.start("db")
    shell.begin("vm1", vm_manifest("vm1"))
    shown = shell.ok("resize pod/vm1 --cpu 4 --memory 2Gi --wait --timeout 10s").splitlines()
    assert shown[0].startswith("pod/vm1 resized in ")
    assert [" ".join(line.split()) for line in shown[2:]] == [
        "vm cpu request 1 → 4 1 → 4 1 → 4",
        "vm cpu limit 1 → 4 - 1 → 4",
        "vm memory request 512Mi → 2Gi 512Mi → 2Gi 512Mi → 2Gi",
        "vm memory limit 512Mi → 2Gi - 512Mi → 2Gi",
        "REQUESTED PLUGGED SEEN BY GUEST TO GO",
        "vCPUs 4 4 4 -",
        "memory 2Gi 2Gi 1998Mi -",
    ]
    header, db, vm1 = shell.ok("get pods -o wide").splitlines()
    assert header.split()[-6:] == ["GUEST", "CPU", "GUEST", "MEMORY", "GUEST", "CELLS"]
    assert db.split()[:4] == ["db", "container", "1/1", "Running"]
    assert db.split()[-3:] == ["-", "-", "-"]
    assert vm1.split()[:4] == ["vm1", "vm", "1/1", "Running"]
    assert vm1.endswith("4 → 4 → 4   2048Mi → 2048Mi → 1998Mi   -")
    assert shell.ok("apply -f -", yaml.safe_dump(shell.pod("vm1"))) == "pod/vm1 unchanged\n"


def cells_manifest(name: str) -> str:
    pod = yaml.safe_load(vm_manifest(name))
    cells = [{"id": cell, "memory": "256Mi"} for cell in (0, 1)]
    pod["spec"]["virtualMachine"]["numa"] = {"cells": cells}
    return str(yaml.safe_dump(pod))


def lines_of(shown: str) -> list[str]:
    return [" ".join(line.split()) for line in shown.splitlines()]


def test_a_cell_of_a_virtual_machine_is_resized_and_shown(shell: Shell) -> None:
    shell.begin("vm1", cells_manifest("vm1"))
    shown = lines_of(shell.ok("resize pod/vm1 --numa 1=+512Mi --cpu 2 --wait --timeout 10s"))
    for line in (
        "vm memory limit 512Mi → 1Gi - 512Mi → 1Gi",
        "vm cell 0 memory 256Mi 256Mi 256Mi",
        "vm cell 1 memory 256Mi → 768Mi 256Mi → 768Mi 256Mi → 768Mi",
        "memory of cell 1 768Mi 768Mi 768Mi -",
    ):
        assert line in shown
    described = lines_of(shell.ok("describe pod/vm1"))
    assert "memory of cell 0 256Mi 256Mi 256Mi -" in described
    assert "Memory by virtio-mem, MaxBootTime 512Mi, Current 1Gi, MaxExpandable 2Gi" in described
    wide = shell.ok("get pods -o wide").splitlines()[1]
    assert wide.endswith("0: 256Mi → 256Mi → 256Mi, 1: 768Mi → 768Mi → 768Mi")
    moved = shell.ok("resize pod/vm1 --numa 0=512Mi --numa 1=512Mi --wait --timeout 10s -o json")
    asked = json.loads(moved)["spec"]["virtualMachine"]["numa"]["cells"]
    assert [cell["memory"] for cell in asked] == ["512Mi", "512Mi"]
    assert "livesize resize pod/vm1 --numa 1=1536Mi" in shell.fails("resize pod/vm1 --memory 2Gi")
    assert "there is no cell 2; the virtual machine has 0 and 1" in shell.fails(
        "resize pod/vm1 --numa 2=1Gi"
    )
    assert "is not what the cells come to" in shell.fails(
        "resize pod/vm1 --numa 1=1Gi --memory 2Gi"
    )
    shell.ok("resize pod/vm1 --numa 1=1Gi --memory 1536Mi --wait --timeout 10s")


def test_cells_are_of_virtual_machines(shell: Shell) -> None:
    shell.start("db")
    sentence = "it is no virtual machine: say the size with --memory"
    assert sentence in shell.fails("resize pod/db --numa 1=1Gi")
    wrong = {
        "pod/db --numa 1Gi": "is not CELL=SIZE",
        "deploy/web --numa 1=1Gi": "not for workloads",
    }
    for words, why in wrong.items():
        assert why in shell.run(f"resize {words}").stderr


def test_cells_are_completed_with_what_they_have(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.shell_completion import ShellComplete

    shell.begin("vm1", cells_manifest("vm1"))
    monkeypatch.setenv("LIVESIZE_KUBECONFIG", str(shell.kubeconfig))
    complete = ShellComplete(cli, {}, "livesize", "_LIVESIZE_COMPLETE")
    words = ["resize", "pod/vm1", "--numa"]
    offered = [item.value for item in complete.get_completions(words, "")]
    assert offered == ["0=256Mi", "1=256Mi"]
    assert [item.value for item in complete.get_completions(words, "1")] == ["1=256Mi"]


def test_a_size_a_virtual_machine_cannot_have_comes_with_the_nearest(shell: Shell) -> None:
    shell.begin("vm1", vm_manifest("vm1"))
    assert "the nearest sizes are 1 and 2" in shell.fails("resize pod/vm1 --cpu 1500m")
    assert "the nearest size is 4" in shell.fails("resize pod/vm1 --cpu 5")
    sentence = shell.fails("resize pod/vm1 --cpu 4 --memory 4Gi --wait")
    assert "spec.virtualMachine.resources.limits[memory]" in sentence
    assert "no container 'web'; it has vm" in shell.fails("resize pod/vm1 -c web --cpu 2")


def test_a_missing_guest_image_is_said_with_its_remedy(shell: Shell) -> None:
    shell.begin("imageless", vm_manifest("imageless"))
    sentence = f"vm does not start, ErrImageNeverPull: {NO_IMAGE}"
    shown = shell.run("get pods")
    assert shown.stderr == f"pod/imageless: {sentence}\n"
    assert shown.stdout.splitlines()[1].split()[:4] == [
        "imageless",
        "vm",
        "0/1",
        "ErrImageNeverPull",
    ]
    assert shell.run("get pods -o name").stderr == ""
    assert sentence in shell.ok("describe pod/imageless").splitlines()
    cause = f"(vm (ErrImageNeverPull: {NO_IMAGE}))"
    asked = shell.ok("resize pod/imageless --cpu 2").splitlines()[0]
    assert asked.endswith(f"; allocated; done when it runs {cause}")
    late = shell.fails("resize pod/imageless --cpu 3 --wait --timeout 300ms")
    assert f"not resized after 0.3 s: pod/imageless: allocated; done when it runs {cause}" in late


def test_delete_waits_until_it_is_gone(shell: Shell) -> None:
    shell.start("db")
    assert shell.ok("delete pod/db") == "pod/db deleted\n"
    assert shell.ok("get pods -o name") == ""
    assert shell.ok("delete pod/db --ignore-not-found") == ""


def test_names_are_completed_from_the_server(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    shell.start("db")
    monkeypatch.setenv("LIVESIZE_KUBECONFIG", str(shell.kubeconfig))
    complete = ShellComplete(cli, {}, "livesize", "_LIVESIZE_COMPLETE")

    def offered(words: list[str], incomplete: str) -> list[Any]:
        return [item.value for item in complete.get_completions(words, incomplete)]

    assert offered(["resize"], "pod/d") == ["pod/db"]
    assert offered(["get"], "po/") == ["po/db"]
    assert "kube-system" in offered(["get", "pods", "-n"], "")


def test_the_doctor_finds_server_and_node(shell: Shell) -> None:
    answer = shell.run(f"doctor -o json --kubeconfig {shell.kubeconfig}")
    findings = {finding["name"]: finding for finding in json.loads(answer.stdout)}
    assert findings["server"]["ok"]
    assert findings["node"]["what"] == f"ready: {NODE}"


def test_wrong_credentials_name_the_file(shell: Shell, tmp_path: Path) -> None:
    config = yaml.safe_load(shell.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "wrong"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    sentence = shell.fails(f"get pods --kubeconfig {tmp_path / 'config'}")
    assert "does not accept the credentials in" in sentence


def test_the_version_of_the_server(shell: Shell) -> None:
    assert shell.ok("version --server").splitlines()[1].startswith("server v")


def test_describe_shows_the_default_policy_and_the_last_resize(shell: Shell) -> None:
    shell.start("shown")
    shell.ok("resize pod/shown --cpu 700m --wait --timeout 10s")
    told = shell.ok("describe pod/shown")
    assert "app cpu" in told
    assert "NoRestart (default)" in told
    assert "Resize Done since" in told
