"""Workloads through the commands, against the real API server over TLS, with small controllers that
resize their pods."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, generation_of, lookup, uid_of
from livesize.api.workload_resize import PREVIOUS, RESIZE_STATUS, template_of
from livesize.api.workload_status import ResizeStatus, format_status
from livesize.cli.app import cli
from unit.cli.small_system import (
    EVIL_CPU_MILLI,
    UNTOUCHED_CPU_MILLI,
    Shell,
    vm_manifest,
    workload_manifest,
)

SIZE = {"cpu": "500m", "memory": "64Mi"}
FORMER = json.dumps({"app": {"limits": SIZE, "requests": SIZE}})


def cpu_of(workload: Object) -> str:
    return str(template_of(workload)["spec"]["containers"][0]["resources"]["limits"]["cpu"])


def rows(shown: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines()[2:]]


@pytest.mark.parametrize("kind", [STATEFUL_SETS, DEPLOYMENTS], ids=lambda kind: kind.singular)
def test_a_workload_is_resized_and_each_pod_shown(shell: Shell, kind: Resource) -> None:
    name = f"waited-{kind.singular}"
    shell.start_workload(kind, name)
    uids = [uid_of(shell.pod(f"{name}-{number}")) for number in (0, 1)]
    short = kind.short_names[0]
    shown = shell.ok(f"resize {short}/{name} --cpu 1 --memory 128Mi --wait --timeout 20s")
    first, header, *_ = shown.splitlines()
    assert first.startswith(f"{kind.singular}/{name} resized in ")
    assert first.endswith(" s, 2 of 2 pods")
    assert header.split() == ["POD", "RESIZE", "BEFORE", "AFTER", "TOOK", "RESTARTED"]
    for number, row in enumerate(rows(shown)):
        assert row[:6] == [f"{name}-{number}", "Done", "500m", "64Mi", "1", "128Mi"]
        assert row[-1] == "no"
    assert [uid_of(shell.pod(f"{name}-{number}")) for number in (0, 1)] == uids
    annotations = shell.workload(f"{short}/{name}")["metadata"]["annotations"]
    assert annotations["resizeAction"] == "InPlaceResizePreferred"
    again = shell.ok(f"resize {short}/{name} --cpu 1 --wait --timeout 20s")
    assert f"{kind.singular}/{name} has this size already, 2 of 2 pods" in again
    assert [row[-2:] for row in rows(again)] == 2 * [["-", "no"]], "they had it"


def test_restart_recreates_every_pod(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "anew")
    shown = shell.ok("resize sts/anew --cpu 1 --action Restart --wait --timeout 20s")
    assert [row[-1] for row in rows(shown)] == ["recreated", "recreated"]


def test_without_waiting_it_is_said_what_will_become_of_each_pod(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "asked")
    shown = shell.ok("resize sts/asked --cpu 1")
    assert shown.splitlines()[0] == (
        "statefulset/asked asked for cpu request 1, cpu limit 1, resizeAction"
        " InPlaceResizePreferred; `livesize describe statefulset/asked` shows how it stands"
    )
    assert [" ".join(row[-4:]) for row in rows(shown)] == 2 * ["resized in place, live"]
    shell.ok("resize sts/asked --cpu 1 --wait --timeout 20s")
    assert "statefulset/asked has this size already" in shell.ok("resize sts/asked --cpu 1")


def test_a_dry_run_says_what_would_become_of_each_pod_and_changes_nothing(shell: Shell) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    shell.start_workload(STATEFUL_SETS, "dry", resizePolicy=policy)
    shown = shell.ok("resize sts/dry --cpu 1 --dry-run")
    assert "statefulset/dry would be resized (cpu request 1, cpu limit 1" in shown
    assert [row[:5] for row in rows(shown)] == [
        [f"dry-{number}", "500m", "64Mi", "1", "64Mi"] for number in (0, 1)
    ]
    assert shown.count("resized in place, containers restart") == 2
    assert shell.ok("resize sts/dry --cpu 1 --dry-run --action Restart").count("recreated") == 2
    workload = shell.workload("sts/dry")
    assert (cpu_of(workload), generation_of(workload)) == ("500m", 1)
    assert "resizeAction" not in workload["metadata"].get("annotations", {})


def test_a_dry_run_of_what_no_running_pod_can_have(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "never")
    line = "resize sts/never --cpu 100m:500m --dry-run"
    assert shell.ok(line).count("recreated: the QoS class would change") == 2
    answer = shell.run(f"{line} --action InPlaceResize")
    assert (answer.exit_code, answer.stdout.count("refused: the QoS class")) == (1, 2)
    assert "statefulset/never: its pods could not be resized: refused: the QoS" in answer.stderr
    assert answer.stderr.endswith("; --action InPlaceResizePreferred would recreate them\n")


def test_several_and_what_one_cannot_do_keeps_no_other_from_it(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "several")
    shell.start("alone")
    answer = shell.run("resize sts/several pod/alone sts/none --cpu 1 --wait --timeout 20s")
    assert answer.exit_code == 1
    assert answer.stderr == (
        'livesize: statefulsets.apps "none" not found; `livesize get statefulsets` shows what there'
        " is, -n picks the namespace\n"
    )
    assert "statefulset/several resized in" in answer.stdout
    assert "pod/alone resized in" in answer.stdout
    both = shell.ok("resize sts/several pod/alone --cpu 1 -o json")
    assert [one["kind"] for one in json.loads(both)["items"]] == ["StatefulSet", "Pod"]
    assert shell.ok("resize sts/several pod/alone --cpu 1 -o name") == (
        "statefulset/several\npod/alone\n"
    )


def test_by_labels(shell: Shell) -> None:
    shell.start_workload(DEPLOYMENTS, "labelled")
    assert shell.ok("resize -l app=labelled --cpu 1 -o name") == "deployment/labelled\n"
    shell.ok("resize -l app=labelled --cpu 1 --wait --timeout 20s")
    assert shell.ok("resize pods -l app=labelled --cpu +1 -o name") == (
        "pod/labelled-0\npod/labelled-1\n"
    )
    assert "there are no statefulsets or deployments with labels app=none in namespace default" in (
        shell.fails("resize -l app=none --cpu 1")
    )
    assert "there are no statefulsets with labels app=labelled" in (
        shell.fails("resize sts -l app=labelled --cpu 1")
    )


def test_undo_brings_the_former_sizes_back(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "back")
    assert "there are no former sizes to go back to" in shell.fails("resize sts/back --undo")
    shell.ok("resize sts/back --cpu 1 --wait --timeout 20s")
    noted = yaml.safe_load(workload_manifest(STATEFUL_SETS, "back", {PREVIOUS: FORMER}))
    noted["spec"]["template"] = template_of(shell.workload("sts/back"))
    shell.ok("apply -f -", yaml.safe_dump(noted))
    shown = shell.ok("resize sts/back --undo --wait --timeout 20s")
    assert [row[2:6] for row in rows(shown)] == 2 * [["1", "64Mi", "500m", "64Mi"]]
    assert cpu_of(shell.workload("sts/back")) == "500m"


def test_some_pods_cannot_and_may_not_be_recreated(shell: Shell) -> None:
    """The end comes at once: nothing would change by waiting."""
    shell.start_workload(STATEFUL_SETS, "large")
    answer = shell.run("resize sts/large --cpu 8 --action InPlaceResize --wait --timeout 60s")
    assert answer.exit_code == 1
    assert answer.stderr.startswith(
        "livesize: not all pods can be resized: statefulset/large: 0 of 2 pods have the new size;"
        " large-0, large-1: its node can never hold it (the node has 4000m of cpu in all)"
    )
    assert "ask for a size feasible on all the nodes" in answer.stderr
    assert "go back with `livesize resize statefulset/large" in answer.stderr
    assert answer.stderr.count("\n") == 1
    table = [line.split()[:2] for line in answer.stdout.splitlines()]
    assert table == [["POD", "RESIZE"], ["large-0", "Infeasible"], ["large-1", "Infeasible"]]


def test_a_resize_that_takes_too_long_says_where_it_stands_and_the_way_back(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "late")
    answer = shell.run(f"resize sts/late --cpu {UNTOUCHED_CPU_MILLI}m --wait --timeout 300ms")
    assert answer.exit_code == 1
    assert (
        "not resized after 0.3 s: statefulset/late: 0 of 2 pods have the new size" in answer.stderr
    )
    assert "asked; the node has not judged it yet" in answer.stderr
    assert "It is still asked for, and goes on by itself" in answer.stderr
    assert "`livesize describe statefulset/late`" in answer.stderr


def test_who_stops_waiting_hears_that_it_is_still_asked_and_the_way_back(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "stopped")
    shell.start("other")
    program = (
        "import signal, sys; sys.stderr.isatty = lambda: True; from livesize.cli.app import cli;"
        " signal.signal(signal.SIGINT, signal.default_int_handler); cli()"
    )
    for targets in ("sts/stopped", "sts/stopped pod/other"):
        line = f"resize {targets} --cpu {UNTOUCHED_CPU_MILLI}m --wait --timeout 60s"
        words = [sys.executable, "-c", program, *line.split()]
        words += ["--kubeconfig", str(shell.kubeconfig)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            told = ""
            while "statefulset/stopped 0/2: stopped-1: asked" not in told:
                told = waiting.stderr.readline()
                assert told, "it ended by itself"
            waiting.send_signal(signal.SIGINT)
            said = waiting.stderr.read()
            assert waiting.wait(timeout=10) == 130, said
        assert "livesize: no longer waited for: statefulset/stopped: 0 of 2 pods" in said
        assert "It is still asked for, and goes on by itself" in said
        assert "or go back with `livesize resize statefulset/stopped" in said
        assert said.count("no longer waited for") == len(targets.split())
        assert "Traceback" not in said


def test_progress_of_each_pod_is_told_on_a_terminal(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("livesize.cli.resize.workload.sys", terminal)
    shell.start_workload(STATEFUL_SETS, "told")
    told = shell.run("resize sts/told --cpu 1 --wait --timeout 20s").stderr.splitlines()
    done = [line for line in told if "500m 64Mi → 1 64Mi in " in line]
    assert sorted(line.split(": ")[1] for line in done) == ["told-0", "told-1"]
    assert done[-1].startswith("statefulset/told 2/2: ")
    evil = shell.run(f"resize sts/told --cpu {EVIL_CPU_MILLI}m --wait --timeout 500ms")
    assert "\\x1b[2Jowned" in evil.stderr
    assert all(one.isprintable() or one == "\n" for one in evil.output), evil.output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("resize sts/none --cpu 1", 'statefulsets.apps "none" not found'),
        ("resize sts/wrong -c web --cpu 1", "the template has no container 'web'; it has app"),
        ("resize sts/wrong --request-cpu 2", "must be less than or equal to cpu limit"),
        ("resize sts/wrong --memory 4", "did you mean 4Gi?"),
        ("resize deploy/wrong --cpu 1", 'deployments.apps "wrong" not found'),
    ],
)
def test_refusals_are_one_sentence(shell: Shell, line: str, words: str) -> None:
    shell.ok("apply -f -", workload_manifest(STATEFUL_SETS, "wrong", spec={"replicas": 0}))
    assert words in shell.fails(line)


def test_virtual_machines_have_whole_cpus(shell: Shell) -> None:
    made = yaml.safe_load(workload_manifest(STATEFUL_SETS, "vms", spec={"replicas": 0}))
    made["spec"]["template"]["spec"] = yaml.safe_load(vm_manifest("vms"))["spec"]
    shell.ok("apply -f -", yaml.safe_dump(made))
    assert "the nearest sizes are 1 and 2" in shell.fails("resize sts/vms --cpu 1500m")
    assert "has no pods to resize; those to come have this size" in (
        shell.ok("resize sts/vms --cpu 2 --wait --timeout 20s")
    )
    vm = template_of(shell.workload("sts/vms"))["spec"]["virtualMachine"]
    assert vm["resources"]["limits"]["cpu"] == "2"


def test_get_and_describe_show_the_size_and_how_its_resize_stands(shell: Shell) -> None:
    shell.start_workload(STATEFUL_SETS, "shown")
    entry = {"pod": "shown-1", "reason": "Deferred", "message": "no room"}
    generation = generation_of(shell.workload("sts/shown"))
    status = ResizeStatus(generation, "2026-01-01T00:00:00Z", 2, 1, [entry], "1 of 2 pods")
    notes = {RESIZE_STATUS: format_status(status), PREVIOUS: FORMER}
    shell.ok("apply -f -", workload_manifest(STATEFUL_SETS, "shown", notes))
    header, row = shell.ok("get sts").splitlines()
    assert header.split() == ["NAME", "READY", "AGE", "SIZE", "RESIZE"]
    assert row.split()[3:] == ["500m", "64Mi", "1/2"]
    told = shell.ok("describe sts/shown")
    assert told.splitlines()[0] == "statefulset/shown in default, 0/2 pods ready, resize 1/2"
    assert "A change of its sizes is a rollout, unless `livesize resize` asks for it" in told
    assert "app cpu      500m       500m     NoRestart" in told
    assert f"Resize of generation {generation}, 2026-01-01T00:00:00Z: 1 of 2 pods" in told
    assert "`livesize resize statefulset/shown --undo`" in told
    pods = [line.split() for line in told.splitlines() if line.startswith("shown-")]
    assert [one[-1] for one in pods] == ["-", "room"]
    assert "Deferred: no room" in told


def test_get_shows_deployments_and_their_replica_sets(shell: Shell) -> None:
    shell.start_workload(DEPLOYMENTS, "web")
    header, row = shell.ok("get deploy").splitlines()
    assert header.split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "SIZE", "RESIZE"]
    assert row.split()[-3:] == ["500m", "64Mi", "-"]
    assert shell.ok("get rs").splitlines()[0].split()[-1] == "SIZE"
    assert "web-1" in shell.ok("describe deploy/web")
    told = shell.ok(f"describe rs/{shell.ok('get rs -o name').split('/')[1]}")
    assert "Its sizes are those of deployment/web; describe that" in told
    assert "web-1" in told


def test_names_are_completed_in_the_words_that_were_begun(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.shell_completion import ShellComplete

    shell.start_workload(STATEFUL_SETS, "named")
    monkeypatch.setenv("LIVESIZE_KUBECONFIG", str(shell.kubeconfig))
    complete = ShellComplete(cli, {}, "livesize", "_LIVESIZE_COMPLETE")

    def offered(command: str, incomplete: str) -> list[str]:
        return [item.value for item in complete.get_completions([command], incomplete)]

    assert offered("resize", "st") == ["statefulset/named"]
    assert offered("resize", "sts/n") == ["sts/named"]
    assert offered("describe", "pod/") == ["pod/named-0", "pod/named-1"]
    assert offered("resize", "") == ["pod/named-0", "pod/named-1", "statefulset/named"]
    assert offered("resize", "nodes/") == []
    shell.start_workload(DEPLOYMENTS, "web")
    assert (offered("resize", "rs/"), len(offered("describe", "rs/"))) == ([], 1)
    assert "statefulsets" in offered("get", "st")
    assert lookup(shell.workload("sts/named"), "kind") == "StatefulSet"
